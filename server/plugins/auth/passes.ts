/**
 * What this process shows to itself: a call it makes to its own API for somebody who has proven who he is. A pass is 256
 * random bits, lives in this process's memory for one request, and is gone when that request has shown it; so nothing
 * that comes from outside can be one, also if it were seen.
 */
import { randomBytes } from "node:crypto";

const PREFIX = "pass_";

export class Passes<Holder> {
  readonly #open = new Map<string, Holder>();

  async lend<T>(
    holder: Holder,
    call: (headers: { authorization: string }) => Promise<T>,
  ): Promise<T> {
    const pass = `${PREFIX}${randomBytes(32).toString("base64url")}`;
    this.#open.set(pass, holder);
    try {
      return await call({ authorization: `Bearer ${pass}` });
    } finally {
      this.#open.delete(pass);
    }
  }

  take(shown: string): Holder | undefined {
    if (!shown.startsWith(PREFIX)) return undefined;
    const holder = this.#open.get(shown);
    this.#open.delete(shown);
    return holder;
  }
}
