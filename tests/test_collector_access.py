"""Who may do what: a token or nothing, said in a header, for requests that are meant for us."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from threading import Barrier, Thread

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kimiaepd.collector.access import CODE_SECONDS, CODES, SESSIONS, Access, Role
from kimiaepd.collector.same_site import Headers, Site
from kimiaepd.collector.token_file import (
    CONTROL_NAME,
    LONGEST,
    OBSERVE_NAME,
    SHORTEST,
    TokenFile,
    digest,
)
from kimiaepd.errors import ConfigError

SITE = Site.at("127.0.0.1", 8398)


@pytest.fixture(scope="module")
def state_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("state")


@pytest.fixture
def access(state_dir: Path) -> Access:
    for name in (CONTROL_NAME, OBSERVE_NAME):
        (state_dir / name).unlink(missing_ok=True)
    return Access.open(state_dir, SITE)


@pytest.fixture
def control(access: Access, state_dir: Path) -> bytes:
    return (state_dir / CONTROL_NAME).read_bytes().strip()


@pytest.fixture
def observe(access: Access, state_dir: Path) -> bytes:
    return (state_dir / OBSERVE_NAME).read_bytes().strip()


def bearer(token: bytes | str, scheme: bytes = b"Bearer ") -> Headers:
    return [(b"authorization", scheme + (token.encode() if isinstance(token, str) else token))]


def offering(*protocols: bytes) -> Headers:
    return [(b"sec-websocket-protocol", b", ".join(protocols))]


# --- tokens of requests --------------------------------------------------------------------------


def test_each_token_opens_what_it_is_for(access: Access, control: bytes, observe: bytes) -> None:
    assert access.role(bearer(control)) is Role.CONTROL
    assert access.role(bearer(observe)) is Role.OBSERVE
    assert access.role([]) is Role.NONE
    assert Role.NONE < Role.OBSERVE < Role.CONTROL


@pytest.mark.parametrize("scheme", [b"bearer ", b"BEARER   ", b" Bearer "])
def test_the_scheme_is_said_as_http_lets_one_say_it(
    access: Access, control: bytes, scheme: bytes
) -> None:
    assert access.role([(b"Authorization", bearer(control, scheme)[0][1])]) is Role.CONTROL


@pytest.mark.parametrize("scheme", [b"", b"Bearer", b"Basic ", b"Bearer\t", b"Bearer x "])
def test_another_scheme_opens_nothing(access: Access, control: bytes, scheme: bytes) -> None:
    assert access.role(bearer(control, scheme)) is Role.NONE


def test_two_tokens_in_a_request_are_none(access: Access, control: bytes, observe: bytes) -> None:
    twice = [*bearer(control), *bearer(observe)]
    assert access.role(twice) is Role.NONE
    assert access.role([*bearer(control), *bearer(b"")]) is Role.NONE
    mixed = [*bearer(control), *offering(b"aep.bearer." + observe)]
    assert access.handshake(mixed).role is Role.NONE
    same = [*bearer(control), *offering(b"aep.bearer." + control)]
    assert access.handshake(same).role is Role.CONTROL


def test_a_browsers_websocket_says_it_as_a_subprotocol_which_is_never_named_back(
    access: Access, control: bytes, observe: bytes
) -> None:
    both = access.handshake(offering(b"aep.v0", b"aep.bearer." + control))
    assert (both.role, both.subprotocol) == (Role.CONTROL, "aep.v0")
    two_lines = [*offering(b"aep.bearer." + observe), *offering(b"aep.v0")]
    other_way = access.handshake(two_lines)
    assert (other_way.role, other_way.subprotocol) == (Role.OBSERVE, "aep.v0")
    alone = access.handshake(offering(b"aep.bearer." + control))
    assert (alone.role, alone.subprotocol) == (Role.CONTROL, None)


def test_a_websocket_may_say_it_in_a_header_and_is_named_what_it_offered(
    access: Access, control: bytes
) -> None:
    by_header = access.handshake(bearer(control))
    assert (by_header.role, by_header.subprotocol) == (Role.CONTROL, None)
    offered = access.handshake([*bearer(control), *offering(b"chat", b"aep.v0")])
    assert (offered.role, offered.subprotocol) == (Role.CONTROL, "aep.v0")
    nothing = access.handshake(offering(b"chat", b"aep.v0"))
    assert (nothing.role, nothing.subprotocol) == (Role.NONE, "aep.v0")


def test_a_request_that_is_no_websocket_has_no_subprotocol(access: Access, control: bytes) -> None:
    assert access.role(offering(b"aep.bearer." + control)) is Role.NONE


def test_a_token_that_stands_for_both_may_only_observe(
    access: Access, control: bytes, state_dir: Path
) -> None:
    (state_dir / OBSERVE_NAME).write_bytes(control)
    assert access.role(bearer(control)) is Role.OBSERVE


# --- tokens in URLs ------------------------------------------------------------------------------


def query(token: bytes | str) -> bytes:
    return b"filter=%7B%7D&access_token=" + (token.encode() if isinstance(token, str) else token)


def test_a_token_that_ends_with_the_daemon_may_come_in_a_url_and_one_that_stays_may_not(
    access: Access, control: bytes, observe: bytes
) -> None:
    passing = access.redeem(access.issue(0.0), 0.0)
    assert passing is not None
    for token, role in ((passing, Role.CONTROL), (access.grant(Role.OBSERVE), Role.OBSERVE)):
        assert access.role([], query(token)) is role
        assert access.handshake(offering(b"aep.v0"), query(token)).role is role
    for token_that_stays in (control, observe):
        assert access.role([], query(token_that_stays)) is Role.NONE
        assert access.role(bearer(token_that_stays), query(token_that_stays)) is Role.NONE
        assert access.handshake([], query(token_that_stays)).role is Role.NONE


def test_a_url_and_a_header_must_say_the_same(access: Access, control: bytes) -> None:
    passing, other = access.grant(Role.CONTROL), access.grant(Role.CONTROL)
    assert access.role(bearer(passing), query(passing)) is Role.CONTROL
    assert access.role(bearer(other), query(passing)) is Role.NONE
    assert access.role(bearer(control), query(passing)) is Role.NONE
    assert access.role([], query(passing) + b"&" + query(other)) is Role.NONE
    assert access.role(bearer(passing), query("")) is Role.NONE
    assert access.role(bearer(passing), b"filter=access_token&x=1") is Role.CONTROL
    subprotocol = offering(b"aep.bearer." + other.encode())
    assert access.handshake(subprotocol, query(passing)).role is Role.NONE


@pytest.mark.parametrize(
    ("site", "role"),
    [
        (Site.at("127.0.0.1", 8398), Role.CONTROL),
        (Site.at("::1", 8398), Role.CONTROL),
        (Site.at("192.0.2.7", 8398, tls=True), Role.CONTROL),
        (Site.at("192.0.2.7", 8398), Role.NONE),
        (Site.at("0.0.0.0", 8398), Role.NONE),
        (Site.at("::", 8398), Role.NONE),
    ],
)
def test_a_url_carries_a_token_only_where_nobody_on_the_way_reads_it(
    state_dir: Path, site: Site, role: Role
) -> None:
    access = Access.open(state_dir, site)
    token = access.grant(Role.CONTROL)
    assert access.role([], query(token)) is role
    assert access.role(bearer(token)) is Role.CONTROL


@pytest.mark.parametrize("written", ["%s", "%%%02X"])
def test_a_url_may_say_it_in_any_spelling_of_urls(access: Access, written: str) -> None:
    token = access.grant(Role.CONTROL)
    first = written % (ord(token[0]) if "X" in written else token[0])
    assert access.role([], query(first + token[1:])) is Role.CONTROL


def test_a_rotation_takes_back_what_came_in_urls_too(access: Access, state_dir: Path) -> None:
    token = access.grant(Role.CONTROL)
    TokenFile(state_dir / CONTROL_NAME).renew()
    assert access.role([], query(token)) is Role.NONE


def test_what_is_given_while_there_is_no_token_to_be_under_opens_nothing(
    access: Access, state_dir: Path
) -> None:
    (state_dir / CONTROL_NAME).unlink()
    token = access.grant(Role.CONTROL)
    assert access.role(bearer(token)) is Role.NONE
    assert access.role([], query(token)) is Role.NONE


@given(
    st.binary() | st.lists(st.sampled_from([b"access_token=", b"&", b"%", b"%zz"])).map(b"".join)
)
def test_no_query_raises_or_opens_anything(state_dir: Path, text: bytes) -> None:
    access = Access.open(state_dir, SITE)
    assert access.role([], text) is Role.NONE
    assert access.handshake([], text).role is Role.NONE


names = st.sampled_from([b"authorization", b"Authorization", b"sec-websocket-protocol", b"host"])
parts = st.binary() | st.sampled_from(
    [b"Bearer ", b"aep.bearer.", b"aep.v0", b",", b" ", b"\0", b"\xff", b"x" * (LONGEST + 1)]
)
wild = st.lists(st.tuples(names, st.lists(parts, max_size=5).map(b"".join)), max_size=4)
any_access = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@any_access
@given(wild)
def test_no_header_raises_or_opens_anything(access: Access, headers: Headers) -> None:
    assert access.role(headers) is Role.NONE
    assert access.handshake(headers).role is Role.NONE
    access.is_own(headers)


@any_access
@given(st.data())
def test_a_wrong_token_of_any_length_is_no_role(
    access: Access, control: bytes, data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(control)))
    wrong = control[:cut] + data.draw(st.binary(max_size=60))
    if wrong.strip(b" \t") == control:
        return
    assert access.role_of(wrong) is Role.NONE
    assert access.role(bearer(wrong)) is Role.NONE
    assert access.handshake(offering(b"aep.bearer." + wrong)).role is Role.NONE


# --- their files -------------------------------------------------------------------------------


def test_the_first_start_makes_both_for_us_alone_and_the_next_keeps_them(
    access: Access, state_dir: Path, control: bytes, observe: bytes
) -> None:
    for name in (CONTROL_NAME, OBSERVE_NAME):
        assert (state_dir / name).stat().st_mode & 0o777 == 0o600
    assert control != observe
    assert min(len(control), len(observe)) >= 43
    again = Access.open(state_dir, SITE)
    assert again.role(bearer(control)) is Role.CONTROL
    assert sorted(path.name for path in state_dir.iterdir()) == [CONTROL_NAME, OBSERVE_NAME]


def test_the_mode_is_right_whatever_the_umask_is(tmp_path: Path) -> None:
    before = os.umask(0o777)
    try:
        TokenFile(tmp_path / "token").ensure()
    finally:
        os.umask(before)
    assert (tmp_path / "token").stat().st_mode & 0o777 == 0o600


def test_a_renewed_token_counts_at_once_and_the_old_one_no_more(
    access: Access, control: bytes, observe: bytes, state_dir: Path
) -> None:
    assert access.role(bearer(control)) is Role.CONTROL
    renewed = TokenFile(state_dir / CONTROL_NAME).renew()
    assert access.role(bearer(control)) is Role.NONE
    assert access.role(bearer(renewed)) is Role.CONTROL
    assert access.role(bearer(observe)) is Role.OBSERVE


def test_a_file_that_is_as_it_was_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = TokenFile(tmp_path / "token")
    token = file.ensure()
    reads: list[TokenFile] = []
    read = TokenFile.read

    def counted(self: TokenFile) -> str:
        reads.append(self)
        return read(self)

    monkeypatch.setattr(TokenFile, "read", counted)
    assert {file.digest() for _ in range(9)} == {digest(token.encode())}
    assert len(reads) == 1


def loosened(path: Path) -> None:
    path.chmod(0o640)


def linked(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def emptied(path: Path) -> None:
    path.write_bytes(b"\n")


def shortened(path: Path) -> None:
    path.write_bytes(b"s" * (SHORTEST - 1))


def split(path: Path) -> None:
    path.write_bytes(b"secret-secret-1\nsecret-secret-2\n")


def lengthened(path: Path) -> None:
    path.write_bytes(b"s" * (LONGEST + 1))


def not_text(path: Path) -> None:
    path.write_bytes(b"s" * SHORTEST + b"\xff\0")


def made_a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


def made_a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir(mode=0o700)


SPOILT = [
    loosened, linked, emptied, shortened, split, lengthened, not_text, made_a_pipe,
    made_a_directory,
]  # fmt: skip


@pytest.mark.parametrize("spoil", SPOILT)
def test_a_file_that_cannot_be_trusted_opens_nothing_and_is_named_without_its_token(
    tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    access = Access.open(tmp_path, SITE)
    path = tmp_path / CONTROL_NAME
    token = path.read_text().strip()
    assert access.role(bearer(token)) is Role.CONTROL
    spoil(path)
    assert access.role(bearer(token)) is Role.NONE
    assert access.role(bearer(b"")) is Role.NONE
    with pytest.raises(ConfigError, match=str(path)) as refused:
        Access.open(tmp_path, SITE)
    assert token not in str(refused.value)
    assert "secret" not in str(refused.value)


def test_a_token_that_others_could_read_is_mended_by_a_new_one(tmp_path: Path) -> None:
    access = Access.open(tmp_path, SITE)
    path = tmp_path / OBSERVE_NAME
    path.chmod(0o644)
    with pytest.raises(ConfigError, match=r"mode 0644.*kimiaepd token rotate --read-only"):
        Access.open(tmp_path, SITE)
    renewed = TokenFile(path).renew()
    assert path.stat().st_mode & 0o777 == 0o600
    assert access.role(bearer(renewed)) is Role.OBSERVE


def test_somebodys_own_token_is_taken(tmp_path: Path) -> None:
    path = tmp_path / CONTROL_NAME
    path.write_text("of-our-own-vault-1\r\n")
    path.chmod(0o600)
    assert Access.open(tmp_path, SITE).role(bearer("of-our-own-vault-1")) is Role.CONTROL


def test_a_file_that_is_removed_closes_the_door(
    access: Access, control: bytes, state_dir: Path
) -> None:
    (state_dir / CONTROL_NAME).unlink()
    assert access.role(bearer(control)) is Role.NONE


def test_two_that_make_one_at_the_same_time_have_the_same(tmp_path: Path) -> None:
    barrier, made = Barrier(4), []

    def make() -> None:
        barrier.wait()
        made.append(TokenFile(tmp_path / "token").ensure())

    threads = [Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 4
    assert set(made) == {(tmp_path / "token").read_text().strip()}
    assert [path.name for path in tmp_path.iterdir()] == ["token"]


def test_a_directory_that_takes_nothing_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="collector-token: cannot be written: No such file"):
        Access.open(tmp_path / "absent", SITE)


# --- codes -------------------------------------------------------------------------------------


def test_a_code_gets_a_token_once(access: Access) -> None:
    code = access.issue(100.0)
    assert access.role(bearer(code)) is Role.NONE, "a code is no token"
    token = access.redeem(code, 100.0)
    assert token is not None
    assert token != code
    assert access.role(bearer(token)) is Role.CONTROL
    assert access.redeem(code, 100.0) is None


def test_a_code_may_be_for_looking_alone(access: Access) -> None:
    token = access.redeem(access.issue(0.0, Role.OBSERVE), 0.0)
    assert token is not None
    assert access.role(bearer(token)) is Role.OBSERVE


def test_a_code_is_good_for_a_minute(access: Access) -> None:
    late, in_time = access.issue(0.0), access.issue(0.0)
    assert access.redeem(in_time, CODE_SECONDS - 0.001) is not None
    assert access.redeem(late, CODE_SECONDS) is None
    assert access.redeem(late, 0.0) is None, "it was used up by coming late"


def test_only_the_latest_codes_are_good(access: Access) -> None:
    codes = [access.issue(0.0) for _ in range(CODES + 1)]
    assert [access.redeem(code, 1.0) is not None for code in codes] == [False] + [True] * CODES


def test_only_the_latest_browsers_stay(access: Access) -> None:
    tokens = [access.redeem(access.issue(0.0), 0.0) for _ in range(SESSIONS + 1)]
    roles = [access.role(bearer(token)) for token in tokens if token]
    assert roles == [Role.NONE] + [Role.CONTROL] * SESSIONS
    given_without_a_code = [access.grant(Role.OBSERVE) for _ in range(SESSIONS)]
    assert {access.role(bearer(token)) for token in given_without_a_code} == {Role.OBSERVE}
    assert {access.role(bearer(token)) for token in tokens if token} == {Role.NONE}


def test_a_browsers_token_ends_with_the_daemon(access: Access, state_dir: Path) -> None:
    token, code = access.redeem(access.issue(0.0), 0.0), access.issue(0.0)
    assert token is not None
    next_daemon = Access.open(state_dir, SITE)
    assert next_daemon.role(bearer(token)) is Role.NONE
    assert next_daemon.redeem(code, 0.0) is None


def test_a_rotation_takes_back_what_browsers_were_given(access: Access, state_dir: Path) -> None:
    token, code = access.redeem(access.issue(0.0), 0.0), access.issue(0.0)
    assert token is not None
    TokenFile(state_dir / OBSERVE_NAME).renew()
    assert access.role(bearer(token)) is Role.CONTROL
    TokenFile(state_dir / CONTROL_NAME).renew()
    assert access.role(bearer(token)) is Role.NONE
    assert access.redeem(code, 0.0) is None


def test_a_browser_gets_nothing_while_there_is_no_token_to_be_under(
    access: Access, state_dir: Path
) -> None:
    (state_dir / CONTROL_NAME).unlink()
    assert access.redeem(access.issue(0.0), 0.0) is None


@any_access
@given(st.text() | st.just("x" * (LONGEST + 1)) | st.just("\ud800"))
def test_what_is_no_code_gets_nothing_and_costs_nothing(access: Access, guess: str) -> None:
    code = access.issue(0.0)
    assert access.redeem(guess, 0.0) is None
    assert access.redeem(code, 0.0) is not None


def test_nothing_shows_a_token(access: Access, control: bytes, observe: bytes) -> None:
    code = access.issue(0.0)
    token = access.redeem(code, 0.0)
    assert token is not None
    access.role(bearer(control))
    seen = [access, access._control, access._observe, *access._sessions, access._codes]
    shown = "".join(map(repr, seen)) + repr(access.handshake(offering(b"aep.bearer." + control)))
    for secret in (code, token, control.decode(), observe.decode()):
        assert secret not in shown
        assert repr(digest(secret.encode())) not in shown


# --- Host and Origin ---------------------------------------------------------------------------


def asked(host: str | None, *origins: str) -> Headers:
    hosts = [] if host is None else [(b"host", host.encode())]
    return [*hosts, *((b"origin", origin.encode()) for origin in origins)]


@pytest.mark.parametrize(
    "host", ["127.0.0.1:8398", "localhost:8398", "LOCALHOST:8398", "[::1]:8398"]
)
def test_loopback_is_called_by_its_names(access: Access, host: str) -> None:
    assert access.is_own(asked(host))
    assert access.is_own(asked(host, f"http://{host}"))


@pytest.mark.parametrize(
    "host",
    [
        None,
        "",
        "localhost",
        "127.0.0.1",
        "localhost:8399",
        "localhost.:8398",
        "evil.example:8398",
        "127.0.0.1.evil.example:8398",
        "localhost:8398@evil.example",
        "localhost:8398, evil.example",
        "0.0.0.0:8398",
        "[::]:8398",
    ],
)
def test_a_request_for_somebody_else_is_refused(access: Access, host: str | None) -> None:
    assert not access.is_own(asked(host))
    assert not access.is_own(asked(host, f"http://{host}"))


@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "",
        "http://evil.example",
        "http://localhost",
        "http://localhost:3000",
        "https://localhost:8398",
        "http://127.0.0.1:8398",
        "http://localhost:8398.evil.example",
        "http://localhost:8398/",
        "file://",
    ],
)
def test_a_page_of_another_place_is_refused(access: Access, origin: str) -> None:
    assert not access.is_own(asked("localhost:8398", origin))


def test_what_is_said_twice_is_refused(access: Access) -> None:
    host = "localhost:8398"
    assert not access.is_own([*asked(host), *asked(host)])
    assert not access.is_own(asked(host, f"http://{host}", f"http://{host}"))


def test_the_bound_address_and_given_names_count_and_an_address_for_all_does_not() -> None:
    site = Site.at("fd00::7", 9000, names=["Relay.Example"], tls=True)
    assert site.is_own(asked("[fd00::7]:9000", "https://[fd00::7]:9000"))
    assert site.is_own(asked("relay.example:9000", "https://relay.example:9000"))
    assert not site.is_own(asked("relay.example:9000", "http://relay.example:9000"))
    for everywhere in ("0.0.0.0", "::"):
        assert Site.at(everywhere, 9000).hosts == Site.at("127.0.0.1", 9000).hosts


@pytest.mark.parametrize(("tls", "port", "scheme"), [(True, 443, "https"), (False, 80, "http")])
def test_the_schemes_own_port_may_be_left_out(tls: bool, port: int, scheme: str) -> None:
    site = Site.at("127.0.0.1", port, tls=tls)
    for host in ("localhost", f"localhost:{port}"):
        assert site.is_own(asked(host, f"{scheme}://localhost"))
        assert site.is_own(asked(host, f"{scheme}://localhost:{port}"))
        assert not site.is_own(asked(host, f"{scheme}://localhost:1"))
