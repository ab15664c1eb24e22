// What the console's model knows and says of events: run by test_console_model.py, in Node.

import assert from "node:assert/strict";
import { test } from "node:test";
import { pathToFileURL } from "node:url";

const folder = pathToFileURL(`${process.env.CONSOLE}/`);
const { KEPT, KEPT_EACH, Model, SESSIONS, has } = await import(new URL("model.js", folder));
const { ago, block, clock, duration, kind, line, summary } = await import(
  new URL("words.js", folder)
);

const NOW = Date.parse("2026-12-01T12:00:00.000Z");
let count = 0;

function event(type, seq, more = {}) {
  return {
    aep: "0.1",
    id: `e-${count++}`,
    type,
    time: new Date(NOW).toISOString(),
    agent: "kimi-code",
    source: "aep://h/agent/kimi-code/session/s",
    session: "s",
    seq,
    epoch: 1,
    capture: "metadata",
    ...more,
  };
}

function told(...events) {
  const model = new Model();
  for (const one of events) model.take(one, NOW);
  return { model, session: model.sessions.get("s") };
}

const ask = (seq, data = {}) =>
  event("attention.requested", seq, {
    id: `ask-${seq}`,
    subject: "Bash",
    data: { respond_via: ["control"], ...data },
  });

test("an event is taken once, by its place, and one of an epoch before comes too late", () => {
  const { model, session } = told(
    event("run.started", 0, { run: "r" }),
    event("run.finished", 1, { run: "r" }),
  );
  assert.equal(model.take(event("run.started", 0, { run: "r" }), NOW), false);
  assert.equal(model.take(event("run.started", 9, { run: "r", epoch: 0 }), NOW), false);
  assert.equal(model.take(event("run.started", 0, { run: "q", epoch: 2 }), NOW), true);
  assert.equal(session.taken, 3);
  assert.deepEqual(model.positions(), [{ session: "s", epoch: 2, seq: 0 }]);
});

test("a command has no place and is taken once by its id", () => {
  const command = event("control.cancel", undefined, { agent: "desk" });
  const { model, session } = told(event("run.started", 0), command);
  assert.equal(model.take(command, NOW), false);
  assert.equal(session.agent, "kimi-code");
});

test("a session is running, waiting, idle, stale, ended, and may begin again", () => {
  const { model, session } = told(event("session.started", 0));
  const then = (one, at = NOW) => {
    model.take(one, at);
    return session.state(at);
  };
  assert.equal(session.state(NOW), "idle");
  assert.equal(then(event("run.started", 1, { run: "r" })), "running");
  assert.equal(then(ask(2)), "waiting");
  assert.equal(
    then(event("attention.timeout", 3, { subject: "ask-2", data: { after_ms: 5 } })),
    "running",
  );
  assert.equal(then(event("run.cancelled", 4, { run: "r" })), "idle");
  assert.equal(session.state(NOW + 999_000), "idle");
  then(event("x.kimi-code.session.session_heartbeat", 5));
  assert.equal(session.state(NOW + 124_000), "idle");
  assert.equal(session.state(NOW + 126_000), "stale");
  assert.equal(then(event("session.ended", 6)), "ended");
  assert.equal(then(event("session.started", 7)), "idle");
});

test("an ask ends once, as what it was", () => {
  const { model } = told(
    ask(0, { options: [{ id: "allow", label: "1" }] }),
    ask(1),
    ask(2),
    ask(3),
  );
  const ends = [];
  model.onask = (one) => ends.push([one.id, one.state]);
  const answer = { answer: { option: "allow" }, via: "control" };
  model.take(event("attention.answered", 4, { subject: "ask-0", cause: "c", data: answer }), NOW);
  model.take(
    event("attention.resolved", 5, { subject: "ask-0", data: { resolution: "answered" } }),
    NOW,
  );
  model.take(
    event("attention.resolved", 6, { subject: "ask-0", data: { resolution: "answered" } }),
    NOW,
  );
  model.take(event("attention.timeout", 7, { subject: "ask-1", data: { after_ms: 50 } }), NOW);
  model.take(
    event("attention.resolved", 8, { subject: "ask-2", data: { resolution: "dismissed" } }),
    NOW,
  );
  model.take(event("session.ended", 9), NOW);
  assert.deepEqual(ends, [
    ["ask-0", "answered"],
    ["ask-1", "timeout"],
    ["ask-2", "dismissed"],
    ["ask-3", "dismissed"],
  ]);
  assert.equal(model.asks.size, 0);
  assert.equal(model.decided.at(-1).answer.cause, "c");
});

test("what is kept is bounded, and the newest is kept", () => {
  const model = new Model();
  for (let number = 0; number < 70 * KEPT_EACH; number++) {
    const session = `s-${number % 70}`;
    model.take(event("tool.requested", number, { session }), NOW);
    if (number % 5000) continue;
    const sizes = [...model.sessions.values()].map((one) => one.entries.length);
    assert.ok(Math.max(...sizes) <= KEPT_EACH);
    assert.equal(
      sizes.reduce((a, b) => a + b, 0),
      model.kept,
    );
    assert.ok(model.kept <= KEPT);
  }
  for (const one of model.sessions.values()) {
    assert.equal(one.known.size, one.entries.length);
    assert.equal(one.entries.at(-1).no, one.taken - 1);
    assert.equal(one.first, one.entries[0].no);
  }
});

test("sessions are bounded: the one that was quiet the longest goes, with what it asked", () => {
  const model = new Model();
  for (let number = 0; number <= SESSIONS; number++) {
    const time = new Date(NOW + number).toISOString();
    model.take({ ...ask(number), id: `a-${number}`, session: `s-${number}`, time }, NOW + 1e6);
  }
  assert.equal(model.sessions.size, SESSIONS);
  assert.equal(model.sessions.has("s-0"), false);
  assert.equal(model.asks.size, SESSIONS);
  assert.equal(model.kept, SESSIONS);
});

test("whatever members an event has, nothing breaks", () => {
  const deep = JSON.parse("[".repeat(20_000) + "]".repeat(20_000));
  const odd = [
    null,
    0,
    -1,
    1e308,
    true,
    "",
    "\ud800\u202e\0",
    "x".repeat(5_000),
    [],
    {},
    [null],
    deep,
    { id: 1, label: {} },
  ];
  const types = [
    "session.started",
    "session.ended",
    "run.started",
    "run.failed",
    "tool.requested",
    "attention.requested",
    "attention.answered",
    "attention.resolved",
    "attention.timeout",
    "control.rejected",
    "x.kimi-code.odd",
    "odd",
  ];
  const names = [
    "prompt",
    "options",
    "expires_at",
    "respond_via",
    "answer",
    "via",
    "after_ms",
    "kind",
    "tool",
    "args_redacted",
    "args",
    "reason",
    "detail",
    "error",
    "duration_ms",
    "gen_ai.request.model",
  ];
  const model = new Model();
  let seq = 0;
  for (const type of types)
    for (const one of odd) {
      const all = Object.fromEntries(names.map((name) => [name, one]));
      for (const data of [one, all, ...names.map((name) => ({ [name]: one }))]) {
        const subject = typeof one === "string" ? one : undefined;
        const made = event(type, seq++, { data, subject, time: String(subject), run: subject });
        model.take(made, NOW);
        assert.equal(typeof summary(made), "string");
      }
    }
  const session = model.sessions.get("s");
  assert.equal(session.taken, seq);
  for (const one of session.entries) has(one, ["x"]);
  for (const one of [...model.asks.values(), ...model.decided]) {
    assert.ok(Array.isArray(one.options));
    assert.ok(one.until === null || Number.isFinite(one.until));
  }
});

test("nothing that is shown turns text around or hides in it", () => {
  assert.equal(line("a\u202eb\u200bc\n d\0"), "a\ufffdb\ufffdc d\ufffd");
  assert.equal(block("a\n\tb\u2066"), "a\n\tb\ufffd");
  assert.equal(kind("x.kimi-code.session.stop"), "session.stop");
});

test("times and durations are said as people say them", () => {
  assert.deepEqual([0, 812, 4_230, 59_960, 185_000, 7_800_000, 3e8].map(duration), [
    "0 ms",
    "812 ms",
    "4.2 s",
    "60.0 s",
    "3 m 05 s",
    "2 h 10 m",
    "3 days",
  ]);
  assert.deepEqual([0, 40_000, 720_000, 1.1e7, 3e8].map(ago), [
    "now",
    "40 s",
    "12 m",
    "3 h",
    "3 d",
  ]);
  assert.equal(clock("never"), "--:--:--");
});
