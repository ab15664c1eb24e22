"""Answers from the console in a real Chromium, and the held hooks that they free."""

from __future__ import annotations

from browser.console_room import PASSED, Console, consoling
from browser.driver import Browser
from live import Live


def test_an_answer_by_mouse_frees_the_held_hook(console: Console) -> None:
    hook = console.held("git push")
    console.browser.sees("Bash: git push", ".ask pre")
    console.browser.sees("awaiting approval", ".session .state")
    console.browser.sees(" s", ".ask .left")
    console.browser.find(".ask button[data-option=allow]").click()
    assert hook.reply() == PASSED
    console.browser.sees("No objection, by you.", "#decided .came")
    console.browser.sees("Nothing waits for you", "#no-asks")
    answered = [one for one in console.live.events("s") if one["type"] == "attention.answered"]
    assert [one["data"] for one in answered] == [{"answer": {"option": "allow"}, "via": "control"}]


def test_an_answer_by_keyboard_frees_the_held_hook(console: Console) -> None:
    hook = console.held()
    console.press(hook, "a")
    assert hook.reply() == PASSED
    console.browser.sees("No objection, by you.", "#decided .came")


def test_words_deny_the_chosen_call_alone_and_the_model_hears_them(console: Console) -> None:
    first, second = console.held("make clean"), console.held("make dist", number=2)
    console.browser.key("i", "j", "r")
    console.browser.key(*"not on main", "Enter")
    assert second.denial() == "not on main"
    console.browser.sees("Deny, by you: not on main.", "#decided .came")
    assert first.is_held
    console.press(first, "d")
    first.denial()


def test_a_key_that_was_meant_for_one_ask_does_not_answer_the_next(console: Console) -> None:
    first, second = console.held("rm -r build"), console.held("rm -r src", number=2)
    console.press(first, "a", "a")
    assert first.reply() == PASSED
    console.browser.sees("rm -r build", "#decided")
    assert second.is_held
    console.press(second, "d")
    second.denial()


def test_what_is_asked_and_what_came_of_it_is_said_to_who_does_not_see_it(
    console: Console,
) -> None:
    hook = console.held("git push")
    console.browser.sees("Bash waits for an answer in s: Bash: git push", "#announcer")
    assert console.browser.run("return document.title") == "(1) kimiaepd"
    console.press(hook, "d")
    hook.denial()
    console.browser.sees("Bash: Deny, by you", "#announcer")


def test_an_answer_that_comes_too_late_says_so(console: Console) -> None:
    hook = console.held()
    # Somebody else was faster, and this page had not heard of it.
    console.app(
        "[...app.model.asks.values()].forEach(ask => {"
        " const about = {session: ask.session, subject: ask.id, cause: ask.id};"
        " const no = {answer: {option: 'deny'}};"
        " app.link.command('control.attention.respond', about, no, 'metadata');"
        " app.inbox.answer(ask, 'allow'); })"
    )
    hook.denial()
    console.browser.sees("Deny, by somebody else. Your answer came too late.", "#decided .came")


def test_an_answer_that_is_none_is_refused_and_another_one_is_taken(console: Console) -> None:
    hook = console.held()
    console.app("[...app.model.asks.values()].forEach(ask => app.inbox.answer(ask, 'perhaps'))")
    console.browser.sees("Refused: invalid", ".ask .said")
    assert hook.is_held
    console.browser.find(".ask button[data-option=deny]").click()
    hook.denial()


def test_nobody_answers_and_the_page_says_that_the_call_went_on(
    browser: Browser, live: Live
) -> None:
    live.environ["AEP_ATTENTION_TIMEOUT_MS"] = "1500"
    live.start()
    with consoling(browser, live) as console:
        console.open()
        hook = console.held()
        assert hook.reply() == PASSED
        browser.sees("Nobody answered in 1.5 s: the call went on.", "#decided .came")


def test_a_page_that_only_observes_offers_no_answer_and_says_why(
    browser: Browser, live: Live
) -> None:
    live.configure('[gate]\nwhen_unreachable = "hold"\n')
    live.start()
    with consoling(browser, live) as console:
        console.open(b"read-only")
        browser.sees("read-only", "#role")
        hook = console.held()
        browser.sees("This page only observes", ".ask .said")
        assert browser.texts(".ask button[data-option]") == []
        assert browser.texts("#instruct") == []
        browser.key("a", "d", "1")
        assert live.stop() == 0
        assert hook.reply() == PASSED
