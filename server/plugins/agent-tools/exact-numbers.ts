/**
 * Numbers of an answer on their way through the MCP library, which parses and writes JSON as JavaScript does: those that
 * would change (`12345678901234567890`, `1e400`, `1.0`) travel as marked strings, and are numbers again where they leave us.
 */
import { randomUUID } from "node:crypto";

/** Strings are passed over, so that what looks like a number in them is none. */
const TOKEN = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;

export class ExactNumbers {
  readonly #mark = `number ${randomUUID()} `;
  // Inside a text part the quotes are escaped once more.
  readonly #marked = new RegExp(`\\\\*"${this.#mark}([-+.\\deE]+)\\\\*"`, "g");
  #isUsed = false;

  parse(text: string): unknown {
    return JSON.parse(
      text.replaceAll(TOKEN, (token) => {
        if (token.startsWith('"') || JSON.stringify(Number(token)) === token) return token;
        this.#isUsed = true;
        return `"${this.#mark}${token}"`;
      }),
    );
  }

  restore(text: string): string {
    return this.#isUsed ? text.replaceAll(this.#marked, "$1") : text;
  }

  /** The same for a response; the library writes each message as one chunk. */
  restored(response: Response): Response {
    if (!response.body) return response;
    const body = response.body.pipeThrough(
      new TransformStream<Uint8Array, Uint8Array>({
        transform: (chunk, controller) =>
          controller.enqueue(
            this.#isUsed ? Buffer.from(this.restore(Buffer.from(chunk).toString())) : chunk,
          ),
      }),
    );
    return new Response(body, response);
  }
}
