"""A selection's page and the browser over documents in a real browser: phone and desktop, by keyboard, offline, inert."""

from pathlib import Path
from typing import Any

import pytest

from datamask_pipeline.look.page import write_page

pytestmark = pytest.mark.ui

WIDTHS = {"desktop": {"width": 1280, "height": 900}, "phone": {"width": 390, "height": 844}}
#: What a keyboard has to reach.
CONTROLS = "a[href], button, input, select, summary, [tabindex='0']"
#: Those that are not folded away.
OPEN = f"[...document.querySelectorAll(`{CONTROLS}`)].filter(each => each.checkVisibility())"
SEEN = (
    "",
    "documents?of=first/datamask&view=borderline",
    "documents?stage=rejected",
    "documents?stage=none",
    "find?id=x",
)


@pytest.fixture
def seen(page: Any) -> dict[str, list[str]]:
    """What the page said and asked for, as it goes on; whatever is not loopback or in the page itself is stopped."""
    found: dict[str, list[str]] = {"said": [], "asked": []}

    def asked(route: Any) -> None:
        url = route.request.url
        inside = url.startswith(("http://127.0.0.1:", "file://", "data:"))
        found["asked"] += [] if inside else [url]
        route.continue_() if inside else route.abort()

    page.route("**/*", asked)
    page.on("console", lambda message: found["said"].append(message.text))
    page.on("pageerror", lambda error: found["said"].append(str(error)))
    page.on("dialog", lambda dialog: found["said"].append(dialog.message))
    return found


@pytest.fixture(scope="session")
def page_file(hostile: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_page(hostile.store, "first", "datamask", tmp_path_factory.mktemp("page") / "page.html")


def document_of(url: str, page: Any) -> str:
    page.goto(f"{url}documents?of=first/datamask&view=kept")
    return str(page.locator("h2 a").first.get_attribute("href")).lstrip("/")


def assert_clean(page: Any, seen: dict[str, list[str]], where: str) -> None:
    assert seen == {"said": [], "asked": []}, where
    assert page.title() != "owned", where
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), (
        f"{where} is wider than the screen"
    )
    from axe_playwright_python.sync_playwright import Axe  # here: only `make test-ui` installs it

    violations = Axe().run(page).response["violations"]
    assert [(each["id"], [node["html"] for node in each["nodes"]]) for each in violations] == [], where


def assert_all_is_reached_by_keyboard(page: Any, where: str) -> None:
    """Tab comes to every control before it leaves the page."""
    number = page.evaluate(f"{OPEN}.length")
    places = set()
    for _ in range(number + 5):
        page.keyboard.press("Tab")
        places.add(page.evaluate(f"{OPEN}.indexOf(document.activeElement)"))
    assert places - {-1} == set(range(number)), where


@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_offline(page: Any, seen: dict[str, list[str]], page_file: Path, width: str) -> None:
    page.set_viewport_size(WIDTHS[width])
    page.context.set_offline(True)
    page.goto(page_file.as_uri())
    assert_all_is_reached_by_keyboard(page, "page")
    assert_clean(page, seen, "page")
    page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true })")
    assert_all_is_reached_by_keyboard(page, "page with its tables")
    assert_clean(page, seen, "page with its tables")
    assert page.locator("img").evaluate_all("all => all.every(image => image.naturalWidth > 0 && image.alt)")
    assert page_file.stat().st_size < 5_000_000


def test_a_table_is_opened_by_keyboard(page: Any, page_file: Path) -> None:
    page.goto(page_file.as_uri())
    page.locator("summary").first.focus()
    page.keyboard.press("Enter")
    assert page.locator("details[open] table").first.is_visible()


@pytest.mark.parametrize("width", WIDTHS)
def test_the_browser(page: Any, seen: dict[str, list[str]], url_of_hostile: str, width: str) -> None:
    page.set_viewport_size(WIDTHS[width])
    # Bad addresses are answered with their status, which the console tells of.
    for path in (*SEEN, document_of(url_of_hostile, page)):
        page.goto(url_of_hostile + path)
        assert_all_is_reached_by_keyboard(page, path)
        seen["said"] = [line for line in seen["said"] if "status of 400" not in line]
        assert_clean(page, seen, path)


def test_filter_search_and_paging_by_keyboard(
    page: Any, seen: dict[str, list[str]], url_of_hostile: str
) -> None:
    page.goto(url_of_hostile)
    tab_to(page, "a", "dropped")
    page.keyboard.press("Enter")
    page.wait_for_url("**/documents?*view=dropped*")
    first = page.locator("h2 a").all_inner_texts()
    tab_to(page, "a", "Next page")
    page.keyboard.press("Enter")
    page.wait_for_url("**after=*")
    assert not set(first) & set(page.locator("h2 a").all_inner_texts())
    tab_to(page, "input", "", name="text")
    page.keyboard.type("violin")
    page.keyboard.press("Enter")
    page.wait_for_url("**text=violin*")
    assert "Searched documents" in page.get_by_role("status").inner_text()
    tab_to(page, "select", "", name="view")
    page.keyboard.press("k")  # the first choice that begins so
    tab_to(page, "button", "Show")
    page.keyboard.press("Enter")
    page.wait_for_url("**view=kept*")
    assert page.locator("article .out").count() == 0
    assert page.locator("article .in").count() > 0
    tab_to(page, "a", page.locator("h2 a").first.inner_text())
    page.keyboard.press("Enter")
    page.wait_for_url("**/document?*")
    page.get_by_role("heading", name="Nearest chosen documents").wait_for()
    assert seen == {"said": [], "asked": []}


def tab_to(page: Any, tag: str, text: str, *, name: str = "") -> None:
    """Press Tab until that control has the focus."""
    for _ in range(150):
        page.keyboard.press("Tab")
        wanted = "[tag, text, name]"
        if page.evaluate(
            f"({wanted}) => {{ const it = document.activeElement; return it.localName === tag"
            " && (!text || it.innerText === text) && (!name || it.name === name) }",
            [tag, text, name],
        ):
            return
    pytest.fail(f"Tab never comes to {tag} {text or name!r}")


def test_payloads_do_nothing(page: Any, seen: dict[str, list[str]], url_of_hostile: str) -> None:
    for row in range(1, 13, 2):
        page.goto(f"{url_of_hostile}document?crawl=tiny-2024-10&row={row}&release=first&arm=datamask")
        assert page.title() == "A document of tiny-2024-10"
        assert page.locator("main script, main img, main b, main a[href^='javascript']").count() == 0
        assert "\u202e" not in page.locator("body").inner_text()
    assert seen == {"said": [], "asked": []}
