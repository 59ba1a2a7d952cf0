"""A client with a user, a model and a folder, who answer everything and remember what they were asked."""

from __future__ import annotations

from typing import Any

import anyio
import mcp_types as types


class Desk:
    """One client's callbacks; every answer carries its name."""

    def __init__(self, name: str = "ada") -> None:
        self.name = name
        self.forms: list[str] = []
        self.pages: list[types.ElicitRequestURLParams] = []
        self.samples: list[types.CreateMessageRequestParams] = []
        self.done: list[str] = []
        self.logs: list[tuple[str, Any]] = []
        self.roots = [f"file:///{name}"]
        self.withdrawn = 0
        self.silent = anyio.Event()
        self.relieved = anyio.Event()
        self.shown = anyio.Event()
        self.finished = anyio.Event()
        self.hesitates = False
        self.closes = False

    @property
    def options(self) -> dict[str, Any]:
        return {
            "elicitation_callback": self.elicit,
            "sampling_callback": self.sample,
            "sampling_capabilities": types.SamplingCapability(tools=types.SamplingToolsCapability()),
            "list_roots_callback": self.list_roots,
            "logging_callback": self.log,
            "message_handler": self.hear,
        }

    async def elicit(self, context: Any, params: Any) -> types.ElicitResult:
        # Questions of mounted servers begin with the name of the server.
        said = params.message.partition(" asks: ")[2] or params.message
        if isinstance(params, types.ElicitRequestURLParams):
            self.pages.append(params.model_copy(update={"message": said}))
            self.shown.set()
            return types.ElicitResult(action="decline" if self.closes else "accept")
        self.forms.append(said)
        if self.hesitates:
            await self._hesitate()
        return types.ElicitResult(action="accept", content={"word": f"{self.name}:{said}"})

    async def _hesitate(self) -> None:
        self.silent.set()
        try:
            await anyio.sleep_forever()
        finally:
            self.withdrawn += 1
            self.relieved.set()

    async def sample(self, context: Any, params: types.CreateMessageRequestParams) -> Any:
        self.samples.append(params)
        asked = params.messages[0].content
        first = asked[0] if isinstance(asked, list) else asked
        assert isinstance(first, types.TextContent)
        use = types.ToolUseContent(
            type="tool_use", id="1", name="look_up", input={"for": f"{self.name}:{first.text}"}
        )
        return types.CreateMessageResultWithTools(
            role="assistant", content=[use], model="scripted", stop_reason="toolUse"
        )

    async def list_roots(self, context: Any) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root.model_validate({"uri": uri}) for uri in self.roots])

    async def log(self, params: types.LoggingMessageNotificationParams) -> None:
        self.logs.append((params.level, params.data))

    async def hear(self, message: Any) -> None:
        if isinstance(message, types.ElicitCompleteNotification):
            self.done.append(message.params.elicitation_id)
            self.finished.set()


class Reception(Desk):
    """The callbacks of a client that several tests share: the desk that is open answers."""

    def __init__(self) -> None:
        super().__init__()
        self.desk = Desk()

    async def elicit(self, context: Any, params: Any) -> types.ElicitResult:
        return await self.desk.elicit(context, params)

    async def sample(self, context: Any, params: types.CreateMessageRequestParams) -> Any:
        return await self.desk.sample(context, params)

    async def list_roots(self, context: Any) -> types.ListRootsResult:
        return await self.desk.list_roots(context)

    async def log(self, params: types.LoggingMessageNotificationParams) -> None:
        await self.desk.log(params)

    async def hear(self, message: Any) -> None:
        await self.desk.hear(message)
