"""The lab as it is served: alone, with the right headers, and it remembers."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PICTURES = ROOT / "artifacts"


@pytest.fixture(scope="module")
def site(chores: Any, files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    chores.SITE = tmp_path_factory.mktemp("site") / "site"
    return Path(chores.build_site(sorted(files.glob("webtune*.whl"))))


@pytest.fixture(scope="module")
def address(chores: Any, site: Path) -> Iterator[str]:
    server = chores.site_server(site, 0)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://localhost:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_the_site_names_no_other_host(site: Path) -> None:
    for path in site.iterdir():
        if path.suffix in (".html", ".js", ".css", ".py", ".json"):
            hosts = set(re.findall(r"https?://([\w.-]+)", path.read_text()))
            assert hosts <= {"www.w3.org"}, path.name


def test_no_tuning_is_done_in_javascript(site: Path) -> None:
    for name in ("main.js", "worker.js"):
        text = (site / name).read_text()
        assert not re.search(r"\bgpu\b|Pipeline|dispatchWorkgroups|median|sort\(", text), name


def test_files_are_served_with_their_types_and_isolated(browser: Any, address: str) -> None:
    context = browser.new_context()
    for path, kind in {
        "/": "text/html",
        "/main.js": "text/javascript",
        "/pyodide/pyodide.mjs": "text/javascript",
        "/pyodide/pyodide.asm.wasm": "application/wasm",
        "/site.json": "application/json",
    }.items():
        answer = context.request.get(address + path)
        assert answer.ok
        assert answer.headers["content-type"].startswith(kind)
        assert answer.headers["cross-origin-opener-policy"] == "same-origin"
        assert answer.headers["cross-origin-embedder-policy"] == "require-corp"
    context.close()


def ready(page: Any) -> None:
    page.wait_for_selector("#tune:not([disabled])", timeout=60_000)


def test_the_lab_tunes_and_remembers_without_any_other_host(browser: Any, address: str) -> None:
    PICTURES.mkdir(exist_ok=True)
    context = browser.new_context(viewport={"width": 1100, "height": 900})
    page = context.new_page()
    foreign: list[str] = []
    wrong: list[str] = []
    page.on("request", lambda r: None if r.url.startswith(address) else foreign.append(r.url))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda m: wrong.append(m.text) if m.type == "error" else None)
    page.goto(address + "/#saxpy/small")
    ready(page)
    assert "swiftshader" in page.inner_text("#adapter")
    assert "OPFS" in page.inner_text("#facts")
    page.screenshot(path=PICTURES / "lab-1-opened.png", full_page=True)

    page.click("#tune")
    page.wait_for_selector("body[data-state=tuning] tbody tr", timeout=60_000)
    page.screenshot(path=PICTURES / "lab-2-tuning.png", full_page=True)
    page.wait_for_selector("body[data-state=done]", timeout=90_000)
    winner = page.inner_text("tr.winner td.name")
    time = page.inner_text("tr.winner td:nth-child(3)")
    assert page.inner_text("#verdict") == winner
    page.wait_for_selector("#remembered a")

    page.reload()
    ready(page)
    page.wait_for_selector("body[data-state=store] tr.winner", timeout=60_000)
    page.wait_for_selector("#remembered a")
    assert page.inner_text("#badge") == "remembered"
    assert page.inner_text("tr.winner td.name") == winner
    assert page.inner_text("tr.winner td:nth-child(3)") == time
    page.screenshot(path=PICTURES / "lab-3-remembered.png", full_page=True)
    assert foreign == []
    assert wrong == []
    context.close()


def test_the_lab_says_what_is_wrong_where_there_is_no_webgpu(browser: Any, address: str) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.route(
        re.compile(r"worker\.js$"),
        lambda route: route.fulfill(
            content_type="text/javascript",
            body="Object.defineProperty(navigator, 'gpu', { value: undefined });\n"
            + (ROOT / "web" / "worker.js").read_text(),
            headers={"Cross-Origin-Embedder-Policy": "require-corp"},
        ),
    )
    page.goto(address)
    page.wait_for_selector("#adapter.trouble", timeout=60_000)
    assert "navigator.gpu is missing" in page.inner_text("#adapter")
    context.close()
