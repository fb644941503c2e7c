/** Receives notifications of new blocks over WebSocket (`eth_subscribe`). */
import type { WebSocket } from "undici";

const REOPEN_MS = 5_000;
/** A connection is given up after this many block times without a notification. */
const SILENT_BLOCKS = 5;
const SUBSCRIBED_WITHIN_MS = 10_000;

/** Subscribes to new heads at the first endpoint that answers, and moves to the next one when it falls silent. */
export class Announcements {
  readonly #urls: readonly string[];
  readonly #onNumber: (number: bigint) => void;
  #socket: WebSocket | undefined;
  #at = 0;
  #isSubscribed = false;
  #isClosed = false;
  #timer: NodeJS.Timeout | undefined;
  /** Time of the last notification, or of the attempt to subscribe. */
  #receivedMs = 0;
  #hasReceived = false;
  /** The usual time between two blocks, measured from notifications. */
  #usualMs: number;

  constructor(urls: readonly string[], blockTimeMs: number, onNumber: (number: bigint) => void) {
    this.#urls = urls;
    this.#usualMs = blockTimeMs;
    this.#onNumber = onNumber;
  }

  /**
   * True while notifications arrive as expected. An endpoint that has been silent for too long is dropped for the next
   * one.
   */
  isReceiving(): boolean {
    const timeoutMs = this.#isSubscribed
      ? Math.max(this.#usualMs * SILENT_BLOCKS, 2_000)
      : SUBSCRIBED_WITHIN_MS;
    if (performance.now() - this.#receivedMs > timeoutMs) this.#giveUp(this.#socket);
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
    // Loaded lazily: only networks with a WebSocket endpoint need it.
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
    // A close event follows each error. The error itself is not used, because its URL may contain a key.
    socket.addEventListener("error", () => undefined);
    socket.addEventListener("close", () => this.#giveUp(socket));
  }

  /** Immediate: an endpoint that fell silent does not complete a close handshake either. */
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
    const message = typeof data === "string" ? numberIn(data) : undefined;
    if (message === "subscribed") this.#isSubscribed = true;
    else if (message === "refused") return this.#giveUp(this.#socket);
    else if (message !== undefined) {
      if (this.#hasReceived) this.#usualMs = (this.#usualMs + now - this.#receivedMs) / 2;
      this.#hasReceived = true;
      this.#onNumber(message);
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
