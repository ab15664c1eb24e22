/** Commands to the chosen session besides answers: to cancel its run, to instruct its agent. */

import { byId, put } from "./dom.js";
import { line, short } from "./words.js";

const CANCEL = "control.cancel";
const INSTRUCT = "x.kimi-code.control.instruct";

export class Orders {
  /** @param {import("./console.js").App} app */
  constructor(app) {
    this.app = app;
    byId("cancel").addEventListener("click", () => this.askCancel());
    byId("sure-yes").addEventListener("click", () => this.#cancel());
    byId("instruct").addEventListener("submit", (submit) => {
      submit.preventDefault();
      this.#instruct(byId("instruction"));
    });
  }

  /** Offer what the session's emitter takes, and nothing else. */
  render() {
    const { app } = this;
    const { session } = app.timeline;
    const accepts = (app.isLive && !app.isReadOnly && app.accepts(app.chosen)) || [];
    byId("cancel").hidden = !(accepts.includes(CANCEL) && session?.runs.size);
    byId("instruct").hidden = !(accepts.includes(INSTRUCT) && session && !session.ended);
  }

  write() {
    if (!byId("instruct").hidden) byId("instruction").focus();
  }

  askCancel() {
    if (byId("cancel").hidden) return;
    put(byId("sure-what"), `Session ${short(this.app.chosen)}: what its agent is doing ends now.`);
    byId("sure").showModal();
  }

  async #cancel() {
    byId("sure").close();
    const [run] = this.app.timeline.session?.runs.keys() ?? [];
    await this.#send("Cancel", CANCEL, run ? { run } : {}, { scope: "run" }, "metadata");
  }

  async #instruct(input) {
    const text = input.value.trim();
    if (!text) return;
    const isTaken = await this.#send("Instruction", INSTRUCT, {}, { text }, "redacted");
    if (isTaken && input.value.trim() === text) input.value = "";
  }

  /** @returns {Promise<boolean>} whether it was accepted */
  async #send(what, type, about, data, level) {
    const { chosen: session, link } = this.app;
    const sent = link.command(type, { session, ...about }, data, level);
    const { accepted, reason, detail } = await sent.outcome;
    const why = `refused, ${line(reason)}${detail ? ` (${line(detail)})` : ""}`;
    const text = `${what}: ${accepted ? "accepted" : why}`;
    if (session === this.app.chosen) put(byId("instructed"), text);
    this.app.announce(text);
    return accepted;
  }
}
