"""What events build: messages, state and activity."""

from aguia.conversation.conversation import Conversation
from aguia.conversation.patch import PatchError
from aguia.conversation.thread import InOrder, Messages

__all__ = ["Conversation", "InOrder", "Messages", "PatchError"]
