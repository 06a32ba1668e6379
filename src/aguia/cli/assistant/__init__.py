"""The built-in agent: an assistant for the folder it is started in, without model or network.

It finds text, shows files, draws the tree and counts lines, each by a tool call whose
arguments stream; keeps a plan in the shared state that ticks along by deltas; and marks its
phases as steps. It reads below its folder and nowhere else (`aguia.cli.assistant.folder`).
"""

from aguia.cli.assistant.agent import MAX_ENTRIES, MAX_HITS, TREE_DEPTH, folder_assistant

__all__ = ["MAX_ENTRIES", "MAX_HITS", "TREE_DEPTH", "folder_assistant"]
