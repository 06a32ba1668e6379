"""The smallest agent: it repeats what was said to it, word by word.

    aguia serve hello                       in this folder
    aguia chat http://127.0.0.1:8000/       in another terminal

`app` is for any ASGI server: uvicorn hello:app
"""

from aguia import text_of
from aguia.server import AgentApp, Run


async def agent(run: Run) -> None:
    """Answer the last message."""
    async with run.text() as text:
        for word in ("You ", "said: ", text_of(run.messages[-1].content)):
            await text.write(word)


app = AgentApp(agent)
