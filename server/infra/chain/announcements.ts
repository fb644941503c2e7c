/** Whoever says that there is a new block, without being asked. */
import type { WebSocket } from "undici";

const REOPEN_MS = 5_000;
/** So long without a word, and the connection is given up. */
const SILENT_BLOCKS = 5;
const SUBSCRIBED_WITHIN_MS = 10_000;

/** `eth_subscribe` to new heads at the first endpoint that answers; the next one when it falls silent. */
export class Announcements {
  readonly #urls: readonly string[];
  readonly #onNumber: (number: bigint) => void;
  #socket: WebSocket | undefined;
  #at = 0;
  #isSubscribed = false;
  #isClosed = false;
  #timer: NodeJS.Timeout | undefined;
  /** The last word, or the attempt to hear one. */
  #receivedMs = 0;
  #hasReceived = false;
  /** Between two blocks, as they come. */
  #usualMs: number;

  constructor(urls: readonly string[], blockTimeMs: number, onNumber: (number: bigint) => void) {
    this.#urls = urls;
    this.#usualMs = blockTimeMs;
    this.#onNumber = onNumber;
  }

  /** Words come, as far as can be known; an end that has been silent for too long is given up for the next. */
  isReceiving(): boolean {
    const patienceMs = this.#isSubscribed
      ? Math.max(this.#usualMs * SILENT_BLOCKS, 2_000)
      : SUBSCRIBED_WITHIN_MS;
    if (performance.now() - this.#receivedMs > patienceMs) this.#giveUp(this.#socket);
    return this.#isSubscribed;
  }

  open(): void {
    const url = this.#urls[this.#at % this.#urls.length];
    if (this.#isClosed || url === undefined) return;
    this.#receivedMs = performance.now();
    this.#hasReceived = false;
    void this.#listen(url);
  }

  async #listen(url: string): Promise<void> {
    // Loaded by whoever has an endpoint for it.
    const { WebSocket: Socket } = await import("undici");
    if (this.#isClosed) return;
    const socket = new Socket(url);
    this.#socket = socket;
    socket.addEventListener("open", () =>
      socket.send(
        JSON.stringify({ jsonrpc: "2.0", id: 1, method: "eth_subscribe", params: ["newHeads"] }),
      ),
    );
    socket.addEventListener("message", ({ data }) => {
      if (this.#socket === socket) this.#read(data);
    });
    // An error is followed by its close, and says nothing that helps; its URL may hold a key.
    socket.addEventListener("error", () => undefined);
    socket.addEventListener("close", () => this.#giveUp(socket));
  }

  /** At once: an end that fell silent does not answer to a close either. */
  #giveUp(socket: WebSocket | undefined): void {
    if (socket === undefined || this.#socket !== socket) return;
    this.#socket = undefined;
    this.#isSubscribed = false;
    socket.close();
    this.#at += 1;
    this.#timer = setTimeout(() => this.open(), REOPEN_MS);
    this.#timer.unref();
  }

  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    this.#socket?.close();
  }

  #read(data: unknown): void {
    const now = performance.now();
    const word = typeof data === "string" ? numberIn(data) : undefined;
    if (word === "subscribed") this.#isSubscribed = true;
    else if (word === "refused") return this.#giveUp(this.#socket);
    else if (word !== undefined) {
      if (this.#hasReceived) this.#usualMs = (this.#usualMs + now - this.#receivedMs) / 2;
      this.#hasReceived = true;
      this.#onNumber(word);
    }
    this.#receivedMs = now;
  }
}

function numberIn(text: string): bigint | "subscribed" | "refused" | undefined {
  try {
    const { id, error, params } = JSON.parse(text) as {
      id?: number;
      error?: unknown;
      params?: { result?: { number?: string } };
    };
    if (id === 1) return error === undefined ? "subscribed" : "refused";
    const number = params?.result?.number;
    return typeof number === "string" ? BigInt(number) : undefined;
  } catch {
    return undefined;
  }
}
