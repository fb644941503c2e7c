/**
 * One-time credentials for requests that this process injects into its own API for an authenticated caller. A pass is
 * 256 random bits, kept in this process's memory for one request and deleted when it is used; so a request from outside
 * can never use one, even if it were observed.
 */
import { randomBytes } from "node:crypto";

const PREFIX = "pass_";

export class InternalPasses<Holder> {
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
