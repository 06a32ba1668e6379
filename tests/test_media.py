"""Media parts out of files, bytes and URLs: their types found out, their size bounded."""

import base64
import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from aguia.client import MAX_BYTES, audio, document, file_handle, image, video
from aguia.protocol.common import UNSET
from aguia.protocol.content import (
    AudioPart,
    DataSource,
    DocumentPart,
    FileSource,
    ImagePart,
    UrlSource,
    VideoPart,
)

PNG = b"\x89PNG\r\n\x1a\n" + b"\x00" * 20
PDF = b"%PDF-1.7\n%\xe2\xe3"
KINDS: dict[str, Any] = {"image": image, "audio": audio, "video": video, "document": document}


def data(content: bytes, mime_type: str) -> DataSource:
    return DataSource(value=base64.b64encode(content).decode(), mime_type=mime_type)


def box(brand: bytes) -> bytes:
    return b"\x00\x00\x00\x18ftyp" + brand + b"\x00" * 12


SNIFFED = [
    ("image", PNG, "image/png"),
    ("image", b"\xff\xd8\xff\xe0\x00\x10JFIF", "image/jpeg"),
    ("image", b"GIF89a\x01\x00", "image/gif"),
    ("image", b"GIF87a\x01\x00", "image/gif"),
    ("image", b"RIFF\x00\x00\x00\x00WEBPVP8 ", "image/webp"),
    ("image", b"BM\x00\x10\x00\x00\x00\x00\x00\x00\x36\x00", "image/bmp"),
    ("image", b"II*\x00\x08\x00", "image/tiff"),
    ("image", b"MM\x00*\x00\x08", "image/tiff"),
    ("image", box(b"avif"), "image/avif"),
    ("image", box(b"heic"), "image/heic"),
    ("document", PDF, "application/pdf"),
    ("document", b"{\\rtf1\\ansi", "application/rtf"),
    ("audio", b"RIFF\x00\x00\x00\x00WAVEfmt ", "audio/wav"),
    ("audio", b"ID3\x04\x00\x00\x00\x00\x00\x23", "audio/mpeg"),
    ("audio", b"\xff\xfb\x90\x64", "audio/mpeg"),
    ("audio", b"\xff\xf1\x50\x80", "audio/aac"),
    ("audio", b"fLaC\x00\x00\x00\x22", "audio/flac"),
    ("audio", b"OggS\x00\x02", "audio/ogg"),
    ("video", b"OggS\x00\x02", "video/ogg"),
    ("video", box(b"isom"), "video/mp4"),
    ("audio", box(b"isom"), "audio/mp4"),
    ("audio", box(b"M4A "), "audio/mp4"),
    ("video", box(b"qt  "), "video/quicktime"),
    ("video", b"RIFF\x00\x00\x00\x00AVI LIST", "video/x-msvideo"),
    ("video", b"\x1a\x45\xdf\xa3\x9fB\x82\x84webm", "video/webm"),
    ("audio", b"\x1a\x45\xdf\xa3\x9fB\x82\x84webm", "audio/webm"),
    ("video", b"\x1a\x45\xdf\xa3\x9fB\x82\x88matroska", "video/x-matroska"),
]


@pytest.mark.parametrize(("kind", "content", "mime_type"), SNIFFED)
def test_the_type_is_found_in_the_first_bytes(kind: str, content: bytes, mime_type: str) -> None:
    """TOOL-7: inline content has its type."""
    part = KINDS[kind](content)
    assert part.type == kind
    assert part.source == data(content, mime_type)
    assert part.metadata is UNSET
    assert KINDS[kind](bytearray(content)) == KINDS[kind](memoryview(content)) == part


def test_a_file_is_taken_into_the_part_with_its_name(tmp_path: Path) -> None:
    """TOOL-7."""
    path = tmp_path / "board.jpg"
    path.write_bytes(PNG)
    expected = ImagePart(source=data(PNG, "image/png"), metadata={"filename": "board.jpg"})
    assert image(path) == image(str(path)) == expected
    assert image(path, metadata={"detail": None}).metadata == {
        "filename": "board.jpg",
        "detail": None,
    }
    assert image(path, metadata={"filename": "x"}).metadata == {"filename": "x"}
    assert image(path, mime_type="image/x-odd").source == data(PNG, "image/x-odd")


@pytest.mark.parametrize(
    ("name", "kind", "mime_type"),
    [
        ("notes.md", "document", "text/markdown"),
        ("notes.TXT", "document", "text/plain"),
        ("table.csv", "document", "text/csv"),
        ("page.html", "document", "text/html"),
        ("data.json", "document", "application/json"),
        ("drawing.svg", "image", "image/svg+xml"),
        ("photo.webp", "image", "image/webp"),
        ("a.b.wav", "audio", "audio/wav"),
        (
            "letter.docx",
            "document",
            "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
        ),
    ],
)
def test_a_name_tells_the_type_that_the_content_does_not(
    tmp_path: Path, name: str, kind: str, mime_type: str
) -> None:
    path = tmp_path / name
    path.write_bytes(b"some text")
    assert KINDS[kind](path).source == data(b"some text", mime_type)


@pytest.mark.parametrize("name", ["noname", "letters.zzz", "pages.tar.gz", "sheet.svgz"])
def test_a_type_that_nothing_tells_is_asked_for(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"some text")
    with pytest.raises(ValueError, match=f"'{path}' can't be told; pass its mime_type"):
        document(path)
    assert document(path, mime_type="text/x-odd").source.mime_type == "text/x-odd"


def test_the_type_of_unknown_bytes_is_asked_for() -> None:
    for odd in (b"some text", b"BMW", b"ID3 tags", b"\xff\xfeh\x00i\x00", b"PK\x03\x04"):
        with pytest.raises(ValueError, match="pass its mime_type"):
            document(odd)
    assert document(b"hi", mime_type="text/plain; charset=utf-8").source == data(
        b"hi", "text/plain; charset=utf-8"
    )


@pytest.mark.parametrize(
    ("kind", "content", "said"),
    [
        ("image", PDF, "application/pdf, which is no image; use document()"),
        ("document", PNG, "image/png, which is no document; use image()"),
        ("audio", PNG, "image/png, which is no audio; use image()"),
        ("video", b"ID3\x04\x00\x00\x00\x00\x00\x23", "audio/mpeg, which is no video; use audio()"),
        ("image", box(b"isom"), "video/mp4, which is no image; use video()"),
    ],
)
def test_content_of_another_kind_is_refused(
    tmp_path: Path, kind: str, content: bytes, said: str
) -> None:
    path = tmp_path / "board.png"
    path.write_bytes(content)
    for source in (content, path, f"data:{kind}/png;base64,{base64.b64encode(content).decode()}"):
        with pytest.raises(ValueError, match=re.escape(said)):
            KINDS[kind](source)


@pytest.mark.parametrize("mime_type", ["png", "", "image/", "image/p ng", "image/png\r\nX: y", "/"])
def test_a_mime_type_that_is_none_is_refused(mime_type: str) -> None:
    for source in (PNG, "https://a.example/b.png"):
        with pytest.raises(ValueError, match="is no MIME type"):
            image(source, mime_type=mime_type)
    with pytest.raises(ValueError, match="is no MIME type"):
        file_handle("f", mime_type=mime_type)


def test_a_mime_type_of_another_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="application/pdf was given, which is no image"):
        image(PNG, mime_type="application/pdf")
    with pytest.raises(ValueError, match="use document()"):
        audio("https://a.example/b", mime_type="text/plain")
    with pytest.raises(ValueError, match="use image()"):
        file_handle("f", mime_type="image/png")


# Files that are none


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "none.png"
    with pytest.raises(FileNotFoundError, match="none.png") as missing:
        image(path)
    assert missing.value.filename == str(path)
    with pytest.raises(FileNotFoundError, match="file_handle()"):
        image("gs://bucket/board.png")


def test_what_is_no_regular_file_is_refused_without_being_read(tmp_path: Path) -> None:
    """A pipe, of all things, would be waited for."""
    with pytest.raises(ValueError, match="is a directory"):
        image(tmp_path)
    with pytest.raises(ValueError, match="no regular file"):
        image("/dev/zero", mime_type="image/png")
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe.png")
        with pytest.raises(ValueError, match="no regular file"):
            image(tmp_path / "pipe.png")


def test_what_is_empty_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").touch()
    for source in (tmp_path / "empty.txt", b"", "data:text/plain,", "data:;base64,"):
        with pytest.raises(ValueError, match="is empty"):
            document(source)


def test_content_that_is_too_large_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "large.txt"
    path.write_bytes(b"x" * 11)
    encoded = base64.b64encode(b"x" * 11).decode()
    for source in (path, "data:,xxxxxxxxxxx", f"data:;base64,{encoded}"):
        with pytest.raises(ValueError, match="larger than the 10 bytes that max_bytes allows"):
            document(source, max_bytes=10)
        assert document(source, max_bytes=11).source.mime_type == "text/plain"
    with pytest.raises(ValueError, match="larger than the 10 bytes"):
        document(b"x" * 11, mime_type="text/plain", max_bytes=10)


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    """A sparse file of a terabyte is refused at once."""
    path = tmp_path / "large.png"
    with path.open("wb") as file:
        try:
            file.truncate(2**40)
        except OSError:
            file.truncate(MAX_BYTES + 1)
    with pytest.raises(ValueError, match="large.png' is larger than the 20,971,520 bytes"):
        image(path)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_a_file_that_does_not_tell_its_size_is_bounded_too() -> None:
    assert document("/proc/self/status", mime_type="text/plain").metadata == {"filename": "status"}
    with pytest.raises(ValueError, match="larger than the 10 bytes"):
        document("/proc/self/status", mime_type="text/plain", max_bytes=10)


def test_a_name_that_is_no_text_does_not_break_the_message(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/b\xff.png"
    try:
        Path(os.fsdecode(path)).write_bytes(PNG)
    except OSError:
        pytest.skip("this file system takes no such names")
    assert image(os.fsdecode(path)).metadata == {"filename": "b\ufffd.png"}


def test_what_is_no_source_is_refused() -> None:
    for odd in (None, 5, ["a.png"]):
        with pytest.raises(TypeError, match="takes a path, a URL or bytes"):
            image(odd)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="passed as bytes or a data: URL"):
        image(base64.b64encode(PNG * 1000).decode())
    with pytest.raises(ValueError, match="is no JSON"):
        image(PNG, metadata={"a": float("nan")})


# URLs


def test_a_url_goes_as_it_is() -> None:
    """TOOL-7: for the agent to fetch; its type is a help and no more."""
    url = "https://a.example/b/board.PNG?size=1#top"
    assert image(url) == ImagePart(source=UrlSource(value=url, mime_type="image/png"))
    assert video("HTTP://a.example/v") == VideoPart(source=UrlSource(value="HTTP://a.example/v"))
    assert document("http://[::1]:80/a.pdf?x=/y.png", metadata={"a": 1}) == DocumentPart(
        source=UrlSource(value="http://[::1]:80/a.pdf?x=/y.png", mime_type="application/pdf"),
        metadata={"a": 1},
    )
    assert image("https://a.example/show.html").source == UrlSource(
        value="https://a.example/show.html"
    )
    assert audio("https://a.example/a", mime_type="audio/wav") == AudioPart(
        source=UrlSource(value="https://a.example/a", mime_type="audio/wav")
    )


@pytest.mark.parametrize(
    "url",
    ["https://", "http:///x.png", "https://[a/", "https://a.example/x y", "https://a.example/\n"],
)
def test_a_url_that_leads_nowhere_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="URL"):
        image(url)


@pytest.mark.parametrize(
    ("url", "content", "mime_type"),
    [
        (f"data:text/plain;base64,{base64.b64encode(b'hi!').decode()}", b"hi!", "text/plain"),
        ("DATA:text/csv;BASE64,aGk", b"hi", "text/csv"),
        ("data:text/csv;base64,aGk%3D", b"hi", "text/csv"),
        ("data:text/csv;base64, a G\nk=", b"hi", "text/csv"),
        ("data:,a%20b+c", b"a b+c", "text/plain"),
        ("data:;charset=utf-8,%C3%BC", "ü".encode(), "text/plain;charset=utf-8"),
        ("data:text/html;a=base64,x", b"x", "text/html;a=base64"),
        (f"data:application/octet-stream,{quote(PDF)}", PDF, "application/pdf"),
    ],
)
def test_a_data_url_is_decoded(url: str, content: bytes, mime_type: str) -> None:
    """TOOL-7: what travels inline has one form, base64."""
    assert document(url) == DocumentPart(source=data(content, mime_type))


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("data:text/plain", "has a comma"),
        ("data:text/plain;base64,a", "no base64"),
        ("data:text/plain;base64,a_-b", "no base64"),
        ("data:text/plain;base64,aGk=aGk=", "no base64"),
        ("data:text/plain;base64,ü", "no base64"),
        ("data:plain,x", "no MIME type"),
    ],
)
def test_a_data_url_that_holds_none_is_refused(url: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        document(url)


# Handles


def test_a_handle_is_passed_on_unread() -> None:
    """TOOL-12: whatever it looks like; the provider is named as in token usage."""
    part = file_handle("https://files.example/a.png?b", "OpenAI")
    assert part == DocumentPart(
        source=FileSource(value="https://files.example/a.png?b", provider="openai")
    )
    assert file_handle("data:,x", kind="image", mime_type="image/png", metadata={"a": 1}) == (
        ImagePart(source=FileSource(value="data:,x", mime_type="image/png"), metadata={"a": 1})
    )
    assert isinstance(file_handle("f", kind="audio"), AudioPart)
    assert isinstance(file_handle("f", kind="video"), VideoPart)


def test_a_handle_that_is_none_is_refused() -> None:
    for odd in ("", None, b"f"):
        with pytest.raises(ValueError, match="not empty"):
            file_handle(odd)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="one of image, audio, video, document, not 'text'"):
        file_handle("f", kind="text")  # type: ignore[arg-type]
