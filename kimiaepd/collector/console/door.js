/**
 * The way in: a one-time code becomes a token.
 *
 * The code leaves the address at once. The token is handed on, and kept nowhere else.
 */

import { byId, mark, put } from "./dom.js";

const ANEW =
  "The daemon does not know this page any more: it was started anew, or its token was." +
  " Get a new code:";
const NOT_GOOD = "This code is not good: it was used, or is older than a minute. Get a new one.";

export class Door {
  /** @param {(token: string, isReadOnly: boolean) => void} entered */
  constructor(entered) {
    this.entered = entered;
    byId("door").addEventListener("submit", (submit) => {
      submit.preventDefault();
      // An address as it was printed does as well.
      this.#enter(byId("code").value.trim().split("#code=").at(-1));
    });
  }

  /** Enter by the code of the address, or ask for one. */
  come() {
    const [, code] = /^#code=(.+)$/.exec(location.hash) ?? [];
    if (location.hash) history.replaceState(null, "", location.pathname);
    if (code) this.#enter(code);
    else this.#open();
  }

  /** Ask for a new code: the token is not good any more. */
  reopen() {
    put(byId("door-why"), ANEW);
    this.#open();
  }

  #open(why = "") {
    put(byId("door-said"), why);
    put(byId("link"), "locked");
    mark(document.body, "door", "open");
    byId("code").focus();
  }

  async #enter(code) {
    let answer;
    try {
      answer = await fetch("/session", {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify({ code }),
      });
      if (!answer.ok) return this.#open(NOT_GOOD);
      answer = await answer.json();
    } catch {
      return this.#open("The daemon does not answer.");
    }
    byId("code").value = "";
    mark(document.body, "door", "shut");
    this.entered(answer.token, answer.role !== "control");
  }
}
