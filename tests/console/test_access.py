"""Acts on users, roles and ACLs by keyboard alone; rights that are missing; masked values."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect

from tests.support.http import ADMIN_PASSWORD, HttpNode, secured_http_node

WAIT_MS = 60_000


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpNode]:
    with secured_http_node(tmp_path_factory.mktemp("secrets")) as started:
        started.ask.post("/v1/topics", {"name": "orders"})
        yield started


def login(context: BrowserContext, node: HttpNode, user: str, password: str) -> Page:
    page = context.new_page()
    page.goto(f"http://127.0.0.1:{node.ask.port}/console/access")
    expect(page).to_have_url(re.compile("/console/login"))
    page.get_by_label("User").fill(user)
    page.get_by_label("Password").fill(password)
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("/console/access"))
    return page


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    with browser.new_context(viewport={"width": 1440, "height": 900}) as opened:
        opened.set_default_timeout(WAIT_MS)
        expect.set_options(timeout=WAIT_MS)
        yield opened


@pytest.fixture
def page(context: BrowserContext, node: HttpNode) -> Page:
    return login(context, node, "admin", ADMIN_PASSWORD)


def press_on(control: Locator) -> None:
    """Give a control the focus, and press it by the keyboard."""
    control.focus()
    expect(control).to_be_focused()
    control.page.keyboard.press("Enter")


def create(page: Page, first_field: str) -> None:
    """Open the dialog by its key, and wait until its first field takes what is typed."""
    page.keyboard.press("p")
    expect(page.get_by_role("dialog").get_by_label(first_field, exact=True)).to_be_focused()


def carry_out(page: Page) -> None:
    """Ctrl and Enter, as the key help says; the dialog is gone when the broker did it."""
    page.keyboard.press("Control+Enter")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_a_user_is_created_changed_and_deleted_by_keyboard(page: Page, node: HttpNode) -> None:
    expect(page.get_by_role("table", name="Users")).to_contain_text("admin")
    create(page, "Name")
    page.keyboard.type("ann")
    page.keyboard.press("Tab")
    page.keyboard.type("rye")
    page.keyboard.press("Tab")
    page.keyboard.type("consumer")
    carry_out(page)
    row = page.get_by_role("row").filter(has_text="ann")
    expect(row).to_contain_text("consumer")
    assert node.ask.get("/v1/users/ann").json["roles"] == ["consumer"]

    press_on(row.get_by_role("button", name="Change… ann"))
    expect(page.get_by_label("Roles, separated by commas")).to_be_focused()
    page.keyboard.press("Control+a")
    page.keyboard.type("producer")
    plan = page.get_by_role("table", name="Change ann")
    expect(plan.get_by_role("row").filter(has_text="Roles")).to_contain_text("producer")
    carry_out(page)
    expect(row).to_contain_text("producer")
    assert node.ask.get("/v1/users/ann").json["roles"] == ["producer"]

    press_on(row.get_by_role("button", name="Password… ann"))
    expect(page.get_by_label("New password")).to_be_focused()
    page.keyboard.type("oats")
    carry_out(page)
    assert node.ask.as_user("ann", "oats").get("/v1/whoami").json["principal"] == "User:ann"

    press_on(row.get_by_role("button", name="Delete… ann"))
    page.get_by_label("Type ann to confirm").focus()
    page.keyboard.type("ann")
    press_on(page.get_by_role("button", name="Delete ann", exact=True))
    expect(row).to_have_count(0)
    assert node.ask.get("/v1/users/ann").status == 404


def test_a_role_and_its_rule_are_created_explained_and_deleted(page: Page, node: HttpNode) -> None:
    press_on(page.get_by_role("link", name="Roles"))
    expect(page.get_by_role("table", name="Roles")).to_contain_text("built in")
    create(page, "Name")
    page.keyboard.type("millers")
    page.keyboard.press("Tab")
    page.keyboard.type("grind")
    carry_out(page)
    expect(page.get_by_role("row").filter(has_text="millers")).to_contain_text("grind")

    press_on(page.get_by_role("link", name="ACLs"))
    expect(page.get_by_text("There is no ACL")).to_be_visible()
    create(page, "Principal")
    page.keyboard.press("Control+a")
    page.keyboard.type("Role:millers")
    page.get_by_label("Name", exact=True).focus()
    page.keyboard.type("orders")
    carry_out(page)
    rules = page.get_by_role("table", name="ACLs")
    expect(rules).to_contain_text("topic:orders")
    (rule,) = node.ask.get("/v1/acls").json["items"]
    assert (rule["principal"], rule["operation"], rule["resource_name"]) == (
        *("Role:millers", "read", "orders"),
    )

    page.goto(page.url.split("?")[0] + "?tab=matrix&of=orders")
    cell = page.get_by_role("button", name=re.compile("^Role:millers may read"))
    press_on(cell)
    expect(page.locator("main [role=status]")).to_contain_text("Allowed")
    expect(
        page.get_by_role("button", name=re.compile("^Role:millers may not write"))
    ).to_be_visible()

    press_on(page.get_by_role("link", name="ACLs"))
    press_on(page.get_by_role("button", name="Delete… Role:millers read orders"))
    carry_out(page)
    expect(page.get_by_text("There is no ACL")).to_be_visible()
    assert node.ask.get("/v1/acls").json["items"] == []


def test_why_names_the_rule(page: Page) -> None:
    press_on(page.get_by_role("link", name="Why?"))
    page.get_by_label("Principal").fill("User:admin")
    page.get_by_label("Name", exact=True).fill("orders")
    page.keyboard.press("Enter")

    expect(page.get_by_text("Allowed")).to_be_visible()


def test_a_refused_act_keeps_its_dialog_with_the_brokers_sentence(page: Page) -> None:
    expect(page.get_by_role("table", name="Users")).to_be_visible()
    create(page, "Name")
    page.keyboard.type("admin")
    page.keyboard.press("Tab")
    page.keyboard.type("x")
    page.keyboard.press("Control+Enter")

    alert = page.get_by_role("dialog").get_by_role("alert")
    expect(alert).to_contain_text("admin")
    expect(alert).to_contain_text("request")


def test_a_reader_sees_masked_values_and_greyed_acts(
    context: BrowserContext, node: HttpNode
) -> None:
    ask = node.ask
    ask.post("/v1/users", {"name": "rea", "password": "rye", "roles": ["consumer"]})
    ask.post("/v1/topics", {"name": "paid", "settings": {"mask.paths": "$.card"}})
    record = {"value": {"json": {"card": "4111", "kg": 7}}}
    assert ask.post("/v1/topics/paid/records", {"records": [record]}).status == 200

    page = login(context, node, "rea", "rye")
    page.goto(f"http://127.0.0.1:{ask.port}/console/topics/paid?at=0@0")

    expect(page.get_by_role("tree").locator(".masked")).to_contain_text("•••")
    expect(page.locator("body")).not_to_contain_text("4111")
    act = page.get_by_role("button", name="Produce")
    expect(act).to_have_attribute("aria-disabled", "true")
    expect(act).to_have_attribute("title", "needs WRITE on topic paid")
    page.keyboard.press("p")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.get_by_role("button", name="hex").click()
    expect(page.locator(".rawtext")).to_be_visible()
    expect(page.locator("body")).not_to_contain_text("4111")
