"""The built-in agent: an assistant for the folder it is started in, without model or network.

It finds text with a subagent a folder, shows files, draws the tree and counts lines, each by a
tool call whose arguments stream; it replaces text in a file when a person agrees to the change
it has shown, and has the application open files. It says beforehand what it is about to do,
keeps a plan in the shared state that ticks along, and marks its phases as steps. It knows its
folder and nothing outside (`aguia.cli.assistant.folder`).
"""

from aguia.cli.assistant.agent import MAX_ENTRIES, TREE_DEPTH, folder_assistant
from aguia.cli.assistant.search import MAX_HITS

__all__ = ["MAX_ENTRIES", "MAX_HITS", "TREE_DEPTH", "folder_assistant"]
