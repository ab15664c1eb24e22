/**
 * The conversation with the relay: one socket after the other, events in order, commands out.
 *
 * Rules:
 * - The token is in memory alone. It travels as a subprotocol, never in an address.
 * - A connection that is lost is followed by another, after a wait that doubles. It goes on where
 *   the sessions stand; sessions that began meanwhile are asked for from their beginning.
 * - A command is answered by its session, or by the relay that finds no way there, or by nobody in
 *   time. It is sent again after a reconnect, as it was: it is done once.
 */

const BASE_MS = 500;
const CAP_MS = 15_000;
const SILENT_MS = 75_000;
const ROSTER_MS = 4_000;
const WATCH_MS = 2_000;
const ACK_MS = 20_000;
const MOST_POSITIONS = 500;
const AGENT = "kimiaepd-console";
const DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";

/** @returns {string} an id that nobody else has: the time, then 80 bits of chance */
function ulid(now) {
  let time = "";
  for (let left = now, place = 0; place < 10; place++, left = Math.floor(left / 32)) {
    time = DIGITS[left % 32] + time;
  }
  const chance = crypto.getRandomValues(new Uint8Array(16));
  return time + Array.from(chance, (one) => DIGITS[one % 32]).join("");
}

/** @typedef {{accepted: boolean, reason: string, detail: string}} Outcome */

const LATE = { accepted: false, reason: "timeout", detail: "no answer in time" };

export class Link {
  #token = "";
  #socket = null;
  #tries = 0;
  #timer = 0;
  #heard = 0;
  #again = false;
  #rosterDue = 0;
  /** @type {Map<string, {text: string, settle: (outcome: Outcome) => void}>} */
  #waiting = new Map();

  /**
   * @param {object} ears
   * @param {(event: object) => void} ears.event of each event
   * @param {(session: string) => void} ears.missing of a session with a gap
   * @param {(entries: object[]) => void} ears.roster
   * @param {() => object[]} ears.positions asked where to go on
   * @param {(session: string) => boolean} ears.knows
   * @param {(state: "connecting"|"live"|"lost"|"refused", retryAt: number) => void} ears.state
   */
  constructor(ears) {
    this.ears = ears;
    setInterval(() => this.#watch(), WATCH_MS);
    addEventListener("online", () => this.retry());
    document.addEventListener("visibilitychange", () => document.hidden || this.retry());
  }

  /** Begin, or begin anew with another token. */
  start(token) {
    this.#token = token;
    this.#tries = 0;
    this.#connect();
  }

  /** Try now, where the next try is only waited for. */
  retry() {
    if (this.#timer) this.#connect();
  }

  /** Ask who is there, soon; many wishes are one. */
  lookAround() {
    this.#rosterDue = Math.min(this.#rosterDue, Date.now() + 400);
    setTimeout(() => this.#watch(), 500);
  }

  /**
   * Send a command.
   * @param {string} type
   * @param {{session: string, subject?: string, run?: string, cause?: string}} about
   * @param {object} data
   * @param {"metadata"|"redacted"} capture of what is in it: a person's words are redacted
   * @returns {{id: string, outcome: Promise<Outcome>}}
   */
  command(type, about, data, capture) {
    const now = Date.now();
    const id = ulid(now);
    const source = `aep://${encodeURIComponent(location.hostname)}/agent/${AGENT}`;
    const time = new Date(now).toISOString();
    const envelope = { aep: "0.1", id, type, time, source, agent: AGENT };
    const text = JSON.stringify({ ...envelope, ...about, capture, data });
    const outcome = new Promise((resolve) => {
      const settle = (said) => {
        if (this.#waiting.delete(id)) resolve(said);
      };
      this.#waiting.set(id, { text, settle });
      setTimeout(() => settle(LATE), ACK_MS);
    });
    this.#say(text);
    return { id, outcome };
  }

  #connect() {
    clearTimeout(this.#timer);
    this.#timer = 0;
    this.#socket?.close();
    this.ears.state("connecting", 0);
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    const socket = new WebSocket(`${scheme}://${location.host}/socket`, [
      "aep.v0",
      `aep.bearer.${this.#token}`,
    ]);
    this.#socket = socket;
    this.#heard = Date.now();
    socket.onopen = () =>
      this.#say({
        type: "hello",
        versions: ["0.1"],
        role: "consumer",
        identity: { agent: AGENT, instance: "page" },
        capabilities: {},
      });
    socket.onmessage = ({ data }) => socket === this.#socket && this.#hear(data);
    socket.onclose = () => socket === this.#socket && this.#lost();
  }

  async #lost() {
    const socket = this.#socket;
    // A handshake does not say why it was refused; what needs no token does, when shown one.
    let isRefused = false;
    try {
      const answer = await fetch("/healthz", {
        headers: { Authorization: `Bearer ${this.#token}` },
      });
      isRefused = answer.ok && !("version" in (await answer.json()));
    } catch {
      // nobody is there: it is tried again
    }
    if (socket !== this.#socket) return;
    if (isRefused) {
      this.#socket = null;
      this.ears.state("refused", 0);
      return;
    }
    const wait = Math.min(CAP_MS, BASE_MS * 2 ** this.#tries++) * (0.5 + Math.random() / 2);
    this.#timer = setTimeout(() => this.#connect(), wait);
    this.ears.state("lost", Date.now() + wait);
  }

  #watch() {
    const now = Date.now();
    if (this.#socket?.readyState !== WebSocket.OPEN) return;
    if (now - this.#heard > SILENT_MS) this.#connect();
    else if (now >= this.#rosterDue && this.#tries === 0) {
      this.#rosterDue = now + ROSTER_MS;
      this.#say({ type: "roster", id: "now" });
    }
  }

  #say(frame) {
    if (this.#socket?.readyState !== WebSocket.OPEN) return;
    this.#socket.send(typeof frame === "string" ? frame : JSON.stringify(frame));
  }

  #hear(text) {
    this.#heard = Date.now();
    let frame;
    try {
      frame = JSON.parse(text);
    } catch {
      return;
    }
    if (typeof frame?.type !== "string") return;
    if (frame.type.includes(".")) this.#event(frame);
    else if (frame.type === "ping") this.#say({ type: "pong", t: frame.t });
    else if (frame.type === "hello") this.#greeted();
    else if (frame.type === "roster") this.#roster(frame);
    else if (frame.type === "replay-exhausted") this.ears.missing(frame.session);
    else if (frame.type === "error" && frame.cause) {
      this.#waiting
        .get(frame.cause)
        ?.settle({ accepted: false, reason: frame.code, detail: frame.detail ?? "" });
    }
  }

  #greeted() {
    if (this.#again) this.#say({ type: "roster", id: "before" });
    else this.#subscribe("all");
  }

  #subscribe(from) {
    this.#say({ type: "subscribe", id: "console", filter: {}, from });
    for (const { text } of this.#waiting.values()) this.#say(text);
    this.#again = true;
    this.#tries = 0;
    this.ears.state("live", 0);
    this.lookAround();
  }

  #roster({ id, entries }) {
    const found = Array.isArray(entries) ? entries : [];
    this.ears.roster(found);
    if (id !== "before") return;
    const began = [...new Set(found.map((one) => one.session))]
      .filter((one) => !this.ears.knows(one))
      .map((session) => ({ session, epoch: -1, seq: -1 }));
    this.#subscribe([...began, ...this.ears.positions()].slice(0, MOST_POSITIONS));
  }

  #event(event) {
    if (event.type === "control.accepted" || event.type === "control.rejected") {
      const { reason = "invalid", detail = "" } = event.data ?? {};
      const accepted = event.type === "control.accepted";
      this.#waiting.get(event.cause)?.settle({ accepted, reason: accepted ? "" : reason, detail });
    }
    this.ears.event(event);
  }
}
