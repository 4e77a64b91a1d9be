"""Debian's Chromium without a window, driven over its own protocol: what is seen and pressed."""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from tests.support.programs import program

WIDTH, HEIGHT = 1280, 720
DEADLINE_S = 30.0
_WATCH = """
window.violations = [];
document.addEventListener('securitypolicyviolation', (event) =>
    window.violations.push(event.violatedDirective + ' ' + event.blockedURI));
"""


@dataclass
class Tab:
    """One page of the browser."""

    socket: aiohttp.ClientWebSocketResponse
    said: list[str] = field(default_factory=list)
    """Errors of the console and of scripts, since the page was opened."""
    _number: int = 0
    _loads: int = 0

    async def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One call of the protocol; events on the way are kept."""
        self._number += 1
        await self.socket.send_json({"id": self._number, "method": method, "params": parameters})
        while True:
            told = await self._next()
            if told.get("id") == self._number:
                assert "error" not in told, (method, told)
                result = told["result"]
                assert isinstance(result, dict)
                return result

    async def _next(self) -> dict[str, Any]:
        told = await self.socket.receive_json(timeout=DEADLINE_S)
        assert isinstance(told, dict)
        self._keep(told)
        return told

    def _keep(self, told: dict[str, Any]) -> None:
        match told.get("method"):
            case "Log.entryAdded" if told["params"]["entry"]["level"] == "error":
                self.said.append(told["params"]["entry"]["text"])
            case "Page.loadEventFired":
                self._loads += 1
            case "Runtime.exceptionThrown":
                self.said.append(str(told["params"]["exceptionDetails"]))
            case _:
                pass

    async def begin(self) -> None:
        """Watches from the first page on, in the size that page 1 has to fit."""
        for part in ("Page", "Log", "Runtime"):
            await self.send(f"{part}.enable")
        await self.send("Page.addScriptToEvaluateOnNewDocument", source=_WATCH)
        await self.send(
            "Emulation.setDeviceMetricsOverride",
            width=WIDTH,
            height=HEIGHT,
            deviceScaleFactor=1,
            mobile=False,
        )

    async def open(self, address: str) -> None:
        """Loads an address whole, scripts and styles; what pages before it said is forgotten."""
        self.said.clear()
        async with self.loading():
            await self.send("Page.navigate", url=address)

    @asynccontextmanager
    async def loading(self) -> AsyncIterator[None]:
        """Waits at its end for the page that what is done inside makes it load."""
        before = self._loads
        yield
        while self._loads == before:
            await self._next()

    async def value(self, script: str) -> Any:
        """What a script on the page comes to."""
        told = await self.send(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

    async def until(self, script: str) -> None:
        """Waits for a script to come to something true."""
        async with asyncio.timeout(DEADLINE_S):
            await self.value(
                "new Promise((done) => { const look = () => "
                f"({script}) ? done(true) : requestAnimationFrame(look); look(); }})"
            )

    async def press(self, key: str) -> None:
        """A key as a person presses it."""
        code = {"Tab": 9, "Enter": 13}[key]
        text = {"text": "\r"} if key == "Enter" else {}
        pressed = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        await self.send("Input.dispatchKeyEvent", type="keyDown", **pressed, **text)
        await self.send("Input.dispatchKeyEvent", type="keyUp", **pressed)

    async def type(self, text: str) -> None:
        """Text into what has the focus."""
        await self.send("Input.insertText", text=text)

    async def picture(self, path: Path) -> None:
        """What is seen now, as PNG."""
        told = await self.send("Page.captureScreenshot", format="png")
        await asyncio.to_thread(_write, path, base64.b64decode(told["data"]))

    async def violations(self) -> list[str]:
        """What the page's policy forbade, and what its scripts failed at."""
        forbidden = await self.value("window.violations")
        return [*forbidden, *self.said]


def _write(path: Path, picture: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(picture)


@asynccontextmanager
async def browser(directory: Path) -> AsyncIterator[Tab]:
    """A browser of its own, with one tab; gone at the end."""
    process = await asyncio.create_subprocess_exec(
        program("chromium", "chromium"),
        "--headless",
        "--no-sandbox",  # its sandbox needs more than a container gives; it opens our pages alone
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--hide-scrollbars",
        "--remote-debugging-port=0",
        f"--user-data-dir={directory}",
        "about:blank",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        address = await _address(process)
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://{address}/json/list") as answer:
                tabs = await answer.json()
            page = next(tab for tab in tabs if tab["type"] == "page")
            async with session.ws_connect(page["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                tab = Tab(socket)
                await tab.begin()
                yield tab
    finally:
        if process.returncode is None:
            process.terminate()
        # Its own pipe is read to the end, or it would wait for somebody to read.
        await process.communicate()


async def _address(process: asyncio.subprocess.Process) -> str:
    assert process.stderr is not None
    async with asyncio.timeout(DEADLINE_S):
        async for line in process.stderr:
            found = re.search(rb"DevTools listening on ws://([^/]+)/", line)
            if found is not None:
                return found[1].decode()
    raise AssertionError("chromium ended before it listened")
