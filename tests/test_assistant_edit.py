"""The one way in which the folder assistant writes: shown first, then done in one piece."""

import hashlib
import os
import stat
import subprocess
from pathlib import Path

import pytest

from aguia.cli.assistant.edit import MAX_CHANGED, MAX_DIFF_CHANGES, carry_out, propose
from aguia.cli.assistant.folder import Folder, FolderError

posix = pytest.mark.skipif(os.name != "posix", reason="links and modes as POSIX has them")


@pytest.fixture(params=[True, False], ids=["descriptors", "paths"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    """An empty folder, opened in both of the ways that systems offer."""
    root = tmp_path / "root"
    root.mkdir()
    if request.param and os.open not in os.supports_dir_fd:
        pytest.skip("this system opens no file below a descriptor")
    return Folder(str(root), request.param)


def put(folder: Folder, name: str, content: str | bytes) -> Path:
    path = Path(folder.root, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def names(folder: Folder) -> list[str]:
    return sorted(os.listdir(folder.root))


def test_what_is_proposed_is_what_is_done(folder: Folder) -> None:
    path = put(folder, "src/a.py", "one two\nthree\ntwo two\n")
    proposal = propose(folder, "src/a.py", "two", "2")
    assert (proposal.path, proposal.occurrences) == ("src/a.py", 3)
    assert proposal.diff == (
        "--- a/src/a.py\n+++ b/src/a.py\n@@ -1,3 +1,3 @@\n"
        "-one two\n+one 2\n three\n-two two\n+2 2\n"
    )
    assert path.read_text() == "one two\nthree\ntwo two\n"
    done = carry_out(folder, "src/a.py", "two", "2", proposal.version)
    assert path.read_text() == "one 2\nthree\n2 2\n"
    assert done.occurrences == 3
    assert os.listdir(path.parent) == ["a.py"]


CONTENTS: dict[str, bytes] = {
    "no line end": b"x\na",
    "one line": b"a",
    "empty lines": b"\n\na\n\n",
    "far apart": b"a\n" + b"-\n" * 20 + b"a\n" + b"-\n" * 6 + b"a\n" + b"-\n" * 7 + b"a",
    "neighbours": b"-\n" * 9 + b"a\na\nb\na\n" + b"-\n" * 9,
    "other line ends": b"a\r\nb\r\nc\x0ba\x0c\r\xe2\x80\xa8a\r\n",
    "byte order mark": b"\xef\xbb\xbfa\n",
}


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
def test_the_diff_makes_the_same_change(folder: Folder, content: bytes) -> None:
    """What is agreed to is a diff that other programs read in the same way."""
    path = put(folder, "f", content)
    proposal = propose(folder, "f", "a", "é b")
    carry_out(folder, "f", "a", "é b", proposal.version)
    changed = path.read_bytes()
    assert changed == content.replace(b"a", "é b".encode())
    path.write_bytes(content)
    git = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CEILING_DIRECTORIES": folder.root}
    subprocess.run(
        ["git", "apply", "--whitespace=nowarn", "-"],
        input=proposal.diff.encode(),
        cwd=folder.root,
        env=git,
        check=True,
    )
    assert path.read_bytes() == changed


def test_bytes_that_are_no_utf8_stay_as_they_are(folder: Folder) -> None:
    path = put(folder, "f", b"caf\xe9 a\nb\n")
    proposal = propose(folder, "f", "a", "x")
    assert "caf\ufffd" in proposal.diff
    carry_out(folder, "f", "a", "x", proposal.version)
    assert path.read_bytes() == b"cxf\xe9 x\nb\n"


def test_a_file_that_has_changed_since_is_left_alone(folder: Folder) -> None:
    path = put(folder, "f", "a\n")
    proposal = propose(folder, "f", "a", "b")
    path.write_text("a\na\n")
    with pytest.raises(FolderError, match="has changed since"):
        carry_out(folder, "f", "a", "b", proposal.version)
    assert path.read_text() == "a\na\n"
    assert names(folder) == ["f"]


def test_a_change_made_while_the_new_file_is_written_wins(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = put(folder, "f", "a\n")
    proposal = propose(folder, "f", "a", "b")
    fsync = os.fsync

    def meanwhile(descriptor: int) -> None:
        path.write_text("by somebody else\n")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", meanwhile)
    with pytest.raises(FolderError, match="has changed since"):
        carry_out(folder, "f", "a", "b", proposal.version)
    assert path.read_text() == "by somebody else\n"
    assert names(folder) == ["f"]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    path = put(folder, "f", "a\n")
    proposal = propose(folder, "f", "a", "b")

    def fails(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, step, fails)
    with pytest.raises(FolderError, match="'f' cannot be changed: No space left on device"):
        carry_out(folder, "f", "a", "b", proposal.version)
    assert path.read_text() == "a\n"
    assert names(folder) == ["f"]


@posix
@pytest.mark.parametrize("mode", [0o600, 0o644, 0o755, 0o4711, 0o200 | 0o400])
def test_the_mode_stays(folder: Folder, mode: int) -> None:
    path = put(folder, "f", "a\n")
    path.chmod(mode)
    carry_out(folder, "f", "a", "b", propose(folder, "f", "a", "b").version)
    assert stat.S_IMODE(path.stat().st_mode) == mode


@posix
def test_links_are_not_followed(folder: Folder) -> None:
    outside = Path(folder.root).with_name("outside")
    outside.mkdir()
    secret = outside / "secret"
    secret.write_text("a\n")
    real = put(folder, "in/real", "a\n")
    root = Path(folder.root)
    (root / "out").symlink_to(secret)
    (root / "outdir").symlink_to(outside)
    (root / "inside").symlink_to("in/real")
    (root / "indir").symlink_to("in")
    os.link(secret, root / "hard")
    for path, why in {
        "out": "leads out",
        "outdir/secret": "leads out",
        "inside": "only by their own name, 'in/real'",
        "indir/real": "only by their own name, 'in/real'",
        "hard": "2 names",
    }.items():
        with pytest.raises(FolderError, match=why):
            propose(folder, path, "a", "b")
        with pytest.raises(FolderError, match=why):
            carry_out(folder, path, "a", "b", "0" * 64)
    assert secret.read_text() == real.read_text() == "a\n"


@posix
def test_a_link_put_in_place_after_the_check_is_not_followed(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the check of a path and its opening, someone else may swap what lies there."""
    outside = Path(folder.root).with_name("outside")
    outside.mkdir()
    (outside / "f").write_text("a\n")
    put(folder, "dir/f", "a\n")
    proposal = propose(folder, "dir/f", "a", "b")
    resolve = Folder.resolve

    def swap(self: Folder, path: str) -> tuple[str, ...]:
        parts = resolve(self, path)
        Path(self.root, "dir").rename(Path(self.root, "moved"))
        Path(self.root, "dir").symlink_to(outside)
        return parts

    monkeypatch.setattr(Folder, "resolve", swap)
    with pytest.raises(FolderError):
        carry_out(folder, "dir/f", "a", "b", proposal.version)
    assert (outside / "f").read_text() == "a\n"
    assert os.listdir(outside) == ["f"]


@pytest.mark.parametrize(
    ("path", "find", "replacement", "why"),
    [
        ("f", "b", "c", "“b” is not in 'f'."),
        ("f", "A", "c", "upper and lower case"),
        ("f", "a", "a", "change nothing"),
        ("f", "", "c", "there has to be some"),
        ("f", "a\n", "c", "on one line"),
        ("f", "a", "b\nc", "on one line"),
        ("f", "a", "\ud800", "Half a character"),
        ("f", "a", "x" * MAX_CHANGED, "would make 'f' larger than 1.0 MB"),
        ("binary", "a", "b", "binary"),
        ("large", "a", "b", "too large"),
        ("d", "a", "b", "folder"),
        ("", "a", "b", "folder"),
        ("nothing", "a", "b", "There is no 'nothing'"),
        ("f/g", "a", "b", "There is no|not a folder"),
        ("../f", "a", "b", "goes up"),
        ("/etc/hosts", "a", "b", "absolute"),
        (".git/config", "a", "b", "git's own"),
    ],
)
def test_what_is_not_changed(
    folder: Folder, path: str, find: str, replacement: str, why: str
) -> None:
    put(folder, "f", "a\n")
    put(folder, "binary", b"a\0")
    put(folder, "large", b"a" * (MAX_CHANGED + 1))
    put(folder, "d/e", "a")
    put(folder, ".git/config", "a")
    before = names(folder)
    with pytest.raises(FolderError, match=why):
        propose(folder, path, find, replacement)
    with pytest.raises(FolderError):
        carry_out(folder, path, find, replacement, "0" * 64)
    assert names(folder) == before
    assert Path(folder.root, "f").read_text() == "a\n"


@posix
def test_what_is_write_protected_or_no_file_is_left_alone(folder: Folder) -> None:
    put(folder, "f", "a\n").chmod(0o444)
    with pytest.raises(FolderError, match="write-protected|not allowed"):
        propose(folder, "f", "a", "b")
    os.mkfifo(Path(folder.root, "pipe"))
    with pytest.raises(FolderError, match="no regular file"):
        propose(folder, "pipe", "a", "b")


def test_a_folder_that_is_only_read_is_not_changed(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a\n")
    folder = Folder(str(tmp_path), writable=False)
    with pytest.raises(FolderError, match="I only read"):
        propose(folder, "f", "a", "b")
    with pytest.raises(FolderError, match="I only read"):
        carry_out(folder, "f", "a", "b", hashlib.sha256(b"a\n").hexdigest()[:16])
    assert (tmp_path / "f").read_text() == "a\n"


def test_a_long_diff_says_what_it_leaves_out(folder: Folder) -> None:
    put(folder, "many", "a\n" * 500)
    diff = propose(folder, "many", "a", "b").diff
    assert diff.count("\n-a") == diff.count("\n+b") == MAX_DIFF_CHANGES
    assert diff.endswith(f"… and {500 - MAX_DIFF_CHANGES} more changed lines\n")
    put(folder, "long", "x" * 5000 + "a" + "y" * 5000)
    old, new = propose(folder, "long", "a", "b").diff.splitlines()[3:6:2]
    assert old.startswith("-…x")
    assert "xay" in old
    assert "xby" in new
    assert len(old) == len(new) < 500
