"""What events build: messages, state and activity."""

from aguia.conversation.conversation import Conversation
from aguia.conversation.patch import PatchError
from aguia.conversation.thread import Messages

__all__ = ["Conversation", "Messages", "PatchError"]
