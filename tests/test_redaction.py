"""What is private never comes out of the pipeline, and what is not private does."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kimiaepd.mapping.json_value import JSON
from kimiaepd.mapping.redaction import PII, SECRET, Redactor
from kimiaepd.mapping.secret_shapes import lower

REDACTOR = Redactor(home="/home/operator")


# --- The standard's corpus


@pytest.mark.shared
def test_the_standards_corpus(shared: Path) -> None:
    corpus = json.loads((shared / "aep/fixtures/redaction.json").read_bytes())
    broken = []
    for case in corpus["text_cases"] + corpus["value_cases"]:
        options = case.get("opts", {})
        redactor = Redactor(
            home=options.get("home"),
            secret_values=tuple(options.get("secretValues", ())),
            pii=options.get("pii", True),
        )
        value = redactor.value(case["input"])
        out = value if isinstance(value, str) else json.dumps(value)
        kept = [part for part in case.get("must_not_contain", []) if part in out]
        lost = [part for part in case.get("must_contain", []) if part not in out]
        if kept or lost:
            broken.append((case["name"], kept, lost))
    assert len(corpus["text_cases"]) > 20
    assert broken == []


# --- Secrets, by how they are known

ISSUED = {
    "AWS": r"A[KS]IA[A-Z0-9]{16}",
    "JWT": r"eyJ[A-Za-z0-9_-]{10,30}\.eyJ[A-Za-z0-9_-]{10,30}\.[A-Za-z0-9_-]{20,40}",
    "GitHub": r"gh[oprsu]_[A-Za-z0-9]{36}",
    "GitHub, fine-grained": r"github_pat_[A-Za-z0-9]{22}_[A-Za-z0-9]{59}",
    "GitLab": r"glpat-[A-Za-z0-9_-]{20}",
    "Slack": r"xox[abps]-[0-9]{12}-[A-Za-z0-9]{24}",
    "OpenAI": r"sk-(proj-)?[A-Za-z0-9]{20,48}[0-9]",
    "Anthropic": r"sk-ant-api03-[A-Za-z0-9_-]{40,95}",
    "Google": r"AIza[A-Za-z0-9_-]{35}",
    "Stripe": r"[rs]k_(live|test)_[A-Za-z0-9]{24}",
    "npm": r"npm_[A-Za-z0-9]{36}",
    "PyPI": r"pypi-AgEIcHlwaS5vcmc[A-Za-z0-9_-]{50,80}",
    "Hugging Face": r"hf_[A-Za-z0-9]{34}",
    "SendGrid": r"SG\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}",
    "Vault": r"hvs\.[A-Za-z0-9_-]{24,90}",
    "Telegram": r"[0-9]{9,10}:AA[A-Za-z0-9_-]{33}",
    "PEM": r"-----BEGIN (EC |RSA )?PRIVATE KEY-----(\n[A-Za-z0-9+/=]{64}){2}\n"
    r"-----END (EC |RSA )?PRIVATE KEY-----",
}
PLACES = [
    "password={}",
    "export DB_PASSWORD={} && make",
    "db_pass: {}\n",
    "{{'passwd': '{}'}}",
    '{{"api_key": "{}", "region": "eu"}}',
    '{{\\"apiKey\\": \\"{}\\"}}',
    "X-Api-Key: {}",
    "token=\n{}",
    'secret:\n  "{}"',
    "client_secret: |\n  {}\n",
    "AWS_SECRET_ACCESS_KEY={}",
    "**Password:** {}",
    'password: str = "{}"',
    'if password == "{}":',
    ":password => '{}'",
    "private_key := `{}`",
    'withPassword("{}")',
    "<password>{}</password>",
    '<add key="ApiKey" value="{}"/>',
    "- name: DB_PASSWORD\n  value: {}\n",
    "password\uff1a{} \u3002",
    "mysql --password {} -e x",
    'args: ["--auth-token", "{}"]',
    "Authorization: Basic {}",
    "authorization: token {}",
    "curl -H 'Authorization: Bearer {}'",
    "Bearer {}",
    "curl -u admin:{} https://x.test",
    "postgres://user:{}@host.test/db",
    "redis://:p@{}@host.test",
    "https://x.test/?sig={}&v=1",
    "Cookie: a=b; session={}; c=d",
    "//registry.test/:_authToken={}",
]
anything = st.text(st.characters(exclude_categories=()), max_size=40)
made_up_values = st.from_regex(r"[A-Za-z0-9]{4,12}[0-9][A-Za-z0-9]{4,12}", fullmatch=True)


@pytest.mark.parametrize("issuer", ISSUED)
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_an_issued_secret_never_survives(issuer: str, data: st.DataObject) -> None:
    secret = data.draw(st.from_regex(ISSUED[issuer], fullmatch=True))
    before, after = data.draw(anything), data.draw(anything)
    between = data.draw(st.sampled_from(" \n\t\"'=,("))
    out = REDACTOR.text(f"{before}{between}{secret} {after}")
    assert secret not in out
    assert SECRET in out


@pytest.mark.parametrize("place", PLACES)
@given(value=made_up_values, before=anything, after=anything)
@settings(max_examples=15, deadline=None)
def test_a_value_in_a_secrets_place_never_survives(
    place: str, value: str, before: str, after: str
) -> None:
    out = REDACTOR.text(f"{before} {place.format(value)} {after}")
    assert value not in out
    assert SECRET in out


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("export API_KEY=x1y2 && run", "export API_KEY=§ && run"),
        ('{"token": "a b", "n": 1}', '{"token": "§", "n": 1}'),
        (r"{\"token\": \"a b\", \"n\": 1}", r"{\"token\": \"§\", \"n\": 1}"),
        (r'{"token": "a\"b", "n": 1}', '{"token": "§", "n": 1}'),
        (r"f(password='it\'s', n=1)", "f(password='§', n=1)"),
        ("?token=abc&user=bob", "?token=§&user=bob"),
        ("{password:abc,user:bob}", "{password:§,user:bob}"),
        ("Server=x;Pwd=abc;Port=1", "Server=x;Pwd=§;Port=1"),
        ("(token=abc), then", "(token=§), then"),
        # What separates pairs elsewhere may be part of a value here.
        ("password: p@ss,w&rd;1 next", "password: § next"),
        ('"password": "cut off by the ven', '"password": "§'),
        ('password="""abc"""', 'password="""§"""'),
        ('password = b"abc"', 'password = b"§"'),
        ("name: A_TOKEN\nvalue: x\nname: B", "name: A_TOKEN\nvalue: §\nname: B"),
        ("postgres://u:p@ss/w@h/db?x=1", "postgres://u:§@h/db?x=1"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\nAbC", "§"),
        ("$ tail k.pem.\nMIIE\nAbC=\n-----END EC PRIVATE KEY-----\nok", "$ tail k.pem.§\nok"),
        ("> -----BEGIN X-----\n> MIIE\n> -----END X-----\n", "> §\n"),
        ("a AKIAIOSFODNN7EXAMPLE/AKIAIOSFODNN7EXAMPLE b", "a §/§ b"),
        ("xAKIAIOSFODNN7EXAMPLEx", "x§x"),
    ],
)  # fmt: skip
def test_the_marker_stands_for_the_value_alone(text: str, expected: str) -> None:
    assert REDACTOR.text(text) == expected.replace("§", SECRET)


# --- What is not private


@pytest.mark.parametrize(
    "text",
    [
        "ran 42 tests, 0 failures, in 3.1s",
        "upgraded to node 22.11.0 and pnpm 9.14.2, react@18.2.0, x@1.0.0-rc.next",
        "the bearer of good news arrived; the bearer authentication scheme",
        "max_tokens: 4096, total_tokens=12, token_count: 3, tokenizer: x, token_type: bearer",
        "author: Jane, keyboard: qwerty, monkey=1, primary_key: id, key: value, secretary: Ann",
        "passed: 12, pass: 3, n_pass=4, passes=5, bypass: yes, compass=north",
        "def login(user: str, password: str | None = None) -> Token: ...",
        "if token:\n    return x\nfor secret in secrets:\n    use(secret)",
        "secret:\n  name: db\n  key: url\n",
        "token=$TOKEN key ${DB_PASSWORD} password: ${{ secrets.DB }} api_key=<your-key>",
        "password: {password} secret=%s token: *** token=",
        "self.token = creds.token",
        "Query `?token=`, `?access_token=`, or a header",
        "PWD=/srv/app OLDPWD=/srv pwd: ~/x",
        "id-token: write",
        "tokens.filter(token => token + 1)",
        "std::token::new() secret://x",
        "docker run -u 1000:1000 x; git push -u origin a:b; python -u x.py",
        "http://localhost:8080/x?y=1 https://[::1]:80/@x",
        "css sk-loading-spinner-container npm_config_user_agent hf_hub_download_everything",
        "git@github.com:owner/repo.git ssh://git@host.test:22/x @app.route @types/node a@b",
        "2024-01-15T10:30:00+02:00 1700000000 1700000000000 127.0.0.1 0.12345678 +0.12345678",
        "550e8400-e29b-41d4-a716-446655440000 @@ -1,7 +1,9 @@ 123 456 7890 0x12345678",
        "src/home/index.ts /homework /home/$USER/x /Users/Shared/x a/root/x /rooted",
        "-----BEGIN----- and ----- END -----",
    ],
)
def test_what_is_not_private_is_left_alone(text: str) -> None:
    assert REDACTOR.text(text) == text


@given(
    text=st.text("abcdefghijlmnoqrtuvwxyz ()[]{}.,;!?<>|*#%&\n\té\u3000\U0001f600", max_size=400)
)
def test_text_without_any_trigger_is_unchanged(text: str) -> None:
    assert REDACTOR.text(text) == text


# --- What the operator listed


def test_a_listed_value_goes_wherever_it_stands() -> None:
    redactor = Redactor(secret_values=("s3cr3t value", 'q"u\\o', "ab", "", "  "))
    assert redactor.text("xs3cr3t valuex") == f"x{SECRET}x"
    assert redactor.text("?q=s3cr3t%20value") == f"?q={SECRET}"
    assert redactor.text(json.dumps('q"u\\o')) == f'"{SECRET}"'
    assert redactor.text("cab abd ab, 'ab'") == f"cab abd {SECRET}, '{SECRET}'"


def test_a_listed_value_that_a_shape_covers_in_part_leaves_nothing() -> None:
    around = "before-AKIAIOSFODNN7EXAMPLE-after"
    inside = "IOSFODNN"
    assert Redactor(secret_values=(around,)).text(f"x {around} y") == f"x {SECRET} y"
    assert Redactor(secret_values=(inside,)).text(f"x {around} y") == f"x before-{SECRET}-after y"


def test_a_listed_name_is_a_secrets_name() -> None:
    redactor = Redactor(secret_names=frozenset({"DEPLOY_PIN", "a.b"}))
    assert redactor.text("DEPLOY_PIN=12 deploy_pin: 'x'") == (
        f"DEPLOY_PIN={SECRET} deploy_pin: '{SECRET}'"
    )
    assert redactor.text("a.b=1 axb=1") == f"a.b={SECRET} axb=1"
    assert redactor.value({"deploy_pin": 12, "pin": 12}) == {"deploy_pin": SECRET, "pin": 12}


def test_a_listed_value_with_bytes_that_are_no_utf_8_raises_nothing() -> None:
    assert Redactor(secret_values=("abc\udcff",)).text("xabc\udcff") == f"x{SECRET}"


def test_listed_values_are_not_in_the_repr() -> None:
    redactor = Redactor(secret_values=("s3cr3t",), secret_names=frozenset({"A"}))
    assert "s3cr3t" not in repr(redactor)


# --- Home directories


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/home/operator/x", "~/x"),
        ("/home/operator", "~"),
        ("in /home/operator.", "in ~."),
        ("/home/operator2/x", "~/x"),
        ("/home/alice.b-c/x", "~/x"),
        ("PATH=/bin:/home/alice/bin", "PATH=/bin:~/bin"),
        ("cc -I/home/alice/include", "cc -I~/include"),
        ("file:///Users/jörg/x", "file://~/x"),
        ("/mnt/c/Users/bob/x /c/Users/bob/x C:/Users/bob/x", "/mnt/c~/x /c~/x C:~/x"),
        (r"C:\Users\bob\x D:\\Users\\bob\\x", r"C:~\x D:~\\x"),
        ("/root/.ssh '/root'", "~/.ssh '~'"),
        ("/mnt/home/operator/x", "/mnt~/x"),
    ],
)
def test_homes_become_a_tilde(text: str, expected: str) -> None:
    assert REDACTOR.text(text) == expected


@pytest.mark.parametrize("home", [None, "", "/"])
def test_no_home_of_its_own_changes_nothing_else(home: str | None) -> None:
    assert Redactor(home=home).text("/srv/x //a / /home/alice") == "/srv/x //a / ~"


@pytest.mark.parametrize("home", ["/srv/agents/kim+1", "/srv/agents/kim+1/"])
def test_a_home_elsewhere_is_known(home: str) -> None:
    redactor = Redactor(home=home)
    assert redactor.text("/srv/agents/kim+1/x /srv/agents/kimm1") == "~/x /srv/agents/kimm1"


# --- People

PEOPLE = [
    "jane.doe+test@example.co.uk",
    "jörg@exämple.de",
    "+1 (555) 123-4567",
    "(555) 123-4567",
    "555-123-4567",
    "555.123.4567",
    "1-555-123-4567",
    "+4915112345678",
    "+44 20 7946 0958",
    "+33 6 12 34 56 78",
    "13812345678",
    "138-1234-5678",
]


@pytest.mark.parametrize("whom", PEOPLE)
def test_people_go_unless_that_is_switched_off(whom: str) -> None:
    assert REDACTOR.text(f"ask {whom}, please") == f"ask {PII}, please"
    assert Redactor(pii=False).text(f"ask {whom}, please") == f"ask {whom}, please"


# --- Values


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"token": "x", "kind": "auth"}, {"token": SECRET, "kind": "auth"}),
        ({"Set-Cookie": ["a=b"]}, {"Set-Cookie": SECRET}),
        ({"credentials": {"u": 1}, "jwt": ""}, {"credentials": SECRET, "jwt": SECRET}),
        ({"accessToken": "x", "DB_PASS": "y"}, {"accessToken": SECRET, "DB_PASS": SECRET}),
        ({"password": 123456, "token": 5}, {"password": SECRET, "token": 5}),
        ({"password": None, "token": True}, {"password": None, "token": True}),
        ({"tokens": {"in": 1}, "max_tokens": 5}, {"tokens": {"in": 1}, "max_tokens": 5}),
        ({"pass": "x", "fail": "y"}, {"pass": SECRET, "fail": "y"}),
        ({"pass": 3, "fail": 0}, {"pass": 3, "fail": 0}),
        ({"name": "API_KEY", "value": "x"}, {"name": "API_KEY", "value": SECRET}),
        ({"name": "LANG", "value": "x"}, {"name": "LANG", "value": "x"}),
        ({"value": "x", "key": ["API_KEY"]}, {"value": "x", "key": ["API_KEY"]}),
        (["sql", "--password", "x", "--host", "y"], ["sql", "--password", SECRET, "--host", "y"]),
        (["--token", 5, "x"], ["--token", 5, "x"]),
        ([["/root/x"], {"a@host.test": "a@host.test"}], [["~/x"], {"a@host.test": PII}]),
        (1.5, 1.5),
    ],
)  # fmt: skip
def test_values_are_redacted_by_name_and_by_text(value: JSON, expected: JSON) -> None:
    before = json.dumps(value)
    assert REDACTOR.value(value) == expected
    assert json.dumps(value) == before, "the input is left as it was"


def test_depth_costs_no_recursion() -> None:
    value: JSON = "AKIAIOSFODNN7EXAMPLE"
    for _ in range(50_000):
        value = [{"a": value}]
    out = REDACTOR.value(value)
    for _ in range(50_000):
        assert isinstance(out, list)
        assert isinstance(out[0], dict)
        out = out[0]["a"]
    assert out == SECRET


numbers = st.integers() | st.floats()
json_values = st.recursive(
    st.none() | st.booleans() | numbers | anything,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(anything | st.sampled_from(["token", "value", "name"]), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(value=json_values, names=st.frozensets(anything), home=st.none() | anything)
def test_no_value_raises(value: JSON, names: frozenset[str], home: str | None) -> None:
    redactor = Redactor(home=home, secret_names=names, secret_values=tuple(names))
    redactor.value(value)


# --- The pipeline as a whole

PIECES = r"""
token password api_key secret = : , ; & ) ] } [ { < > | / @ - -- + _ . a b1 hunter2 Bearer bearer
AKIAIOSFODNN7EXAMPLE ghp_AbCdEfGhIjKlMnOpQrStUvWxYz012345 eyJhbGciOiJI.eyJzdWIiOiIx.Sfl :// user
sk-abcdef1234567890 host.com a@b.com /home/ /home/operator alice /root ~ +1 555-123-4567 (555)
13812345678 [REDACTED:secret] [REDACTED:pii] [REDACTED: secret] -----BEGIN§A----- -----END§A-----
MIIE str true $X ${x} $( {{ cookie: -u --user --token value: name ** user:pw@ ?sig= null os.environ
\ \" " ' `
"""
soups = st.lists(
    st.sampled_from([*PIECES.split(), " ", "\n", "|\n", "\ud83d", "\u0130", "é"]), max_size=14
).map(lambda pieces: "".join(pieces).replace("§", " "))


@given(text=soups)
@settings(max_examples=500, deadline=None)
def test_redacting_twice_is_redacting_once(text: str) -> None:
    once = REDACTOR.text(text)
    assert REDACTOR.text(once) == once


def test_every_character_keeps_its_place_in_lower_case() -> None:
    every = "".join(map(chr, range(sys.maxunicode + 1)))
    assert len(lower(every)) == len(every)


ALARMING = r"""
a - . @ : = / \ " ' ` , ; §  \n \t --a. a@ @a. a@b.c. a@b.c@ token token§ token= token=" token='
token=\" token=, token=,a token=&a- token=$ token={{ token=< token=<a§ token=[ token=os.environ
token=[REDACTED:secret] [REDACTED: token:\n token§value token:|\n "token":§[ password=\ password='''
password:§ password:§str§|§ name:§token\n§value **token**:** key§ api_key\n api_key§§§ --token§
--token§a§ --user§a -u§a -u§a: -u" cookie:§ cookie:§a= eyJ eyJaaaaaaaaa eyJaaaaaaaaa.
eyJaaaaaaaaa.b. sk- sk-a sk-a§ bearerbearer Bearer§aaaaaaa§ AKIA ghp_ SG.a SG.aaaaaaaaaaaaaaaaaa
glpat- xoxb- hooks.slack.com/ 1234567:AA ?sig= :// ://a: ://a:b@ ://a:@ a:b@ -----BEGIN§A-----
-----END§A----- -----BEGIN§ -§ /home/ /home/a /home/a. C:\Users\ -I/home/ /root +1 1- 555- (555)§
123§ 1 1§3 13 1381234 aaaaaaaab a'b"c`
"""
alarming = [
    unit.replace("§", " ").replace(r"\n", "\n").replace(r"\t", "\t") for unit in ALARMING.split()
]
WATCHFUL = Redactor(
    home="/home/op", secret_names=frozenset({"DEPLOY_PIN"}), secret_values=("aaaaaaaaab", "s3cr3t")
)


def _seconds_of_processor(unit: str, length: int) -> float:
    text = (unit * (length // len(unit) + 1))[:length]
    spent = []
    for _ in range(3):
        begun = time.process_time()
        WATCHFUL.text(text)
        spent.append(time.process_time() - begun)
    return min(spent)


@pytest.mark.parametrize("unit", [*alarming, "\u0130", "é@", "\ud83d"])
def test_eight_times_the_text_takes_about_eight_times_the_work(unit: str) -> None:
    # Quadratic work would be 64 times as much. The least of three, in time of this process alone,
    # is steady enough to tell the two apart on a busy machine.
    small, large = (_seconds_of_processor(unit, length) for length in (8_000, 64_000))
    assert large < 28 * small


@pytest.mark.parametrize(
    "unit", ["a", "token", "token=,a", "a@b.c.", "eyJaaaaaaaaa.", "://a:b@", "-----BEGIN A-----"]
)
def test_a_megabyte_of_an_alarming_shape_comes_to_an_end(unit: str) -> None:
    text = unit * (1_000_000 // len(unit))
    assert WATCHFUL.text(text)
