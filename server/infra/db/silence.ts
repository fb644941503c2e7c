/**
 * Notices connections that went silent: after a failover, or behind a proxy that forgot them, nothing comes
 * back and no error either, for as long as TCP is willing to wait. A question without a byte of answer for
 * longer than the server itself would let it run was asked of nobody: its connection is destroyed, which
 * fails the question (whether it was carried out is unknown), and all others are suspected with it.
 */
import type { ClientBase } from "pg";

const TICK_MS = 250;
/** Once one was found silent, older ones are given no longer than this. */
const SUSPECT_LIMIT_MS = 1_500;
/** Held by somebody who asks nothing (a listener): renewed with the idle ones. */
const DORMANT_MS = 10_000;

/** What pg keeps below a client: told by its messages, not by its types. */
interface Wire {
  stream: {
    bytesRead: number;
    bytesWritten: number;
    destroyed: boolean;
    destroy(error: Error): void;
  };
  prependListener(event: "readyForQuery", listener: () => void): void;
}

interface Watched {
  wire: Wire;
  limitMs: number;
  openedAtMs: number;
  /** What had been written when the server last said that it waits for us. */
  answeredAt: number;
  bytesRead: number;
  /** Without a byte, and of that with a question open. Counted in ticks: a process that was stopped did not listen. */
  quietMs: number;
  unansweredMs: number;
  isIdle: boolean;
}

export class SilentConnection extends Error {
  override name = "SilentConnection";
  constructor() {
    super("Connection terminated: the database did not respond on it");
  }
}

/** One for all connections of a process: what one of them finds out counts for all. */
export class SilenceWatch {
  readonly #watched = new Map<ClientBase, Watched>();
  readonly #onSilence: () => void;
  #timer: NodeJS.Timeout | undefined;
  #suspectedAtMs = Number.NEGATIVE_INFINITY;

  constructor(onSilence: () => void = () => undefined) {
    this.#onSilence = onSilence;
  }

  /** From its connecting on. A limit above the statement timeout: then only silence can exceed it. */
  watch(client: ClientBase, limitMs: number): void {
    const { connection: wire } = client as unknown as { connection: Wire };
    const watched: Watched = {
      wire,
      limitMs,
      openedAtMs: performance.now(),
      answeredAt: wire.stream.bytesWritten,
      bytesRead: wire.stream.bytesRead,
      quietMs: 0,
      unansweredMs: 0,
      isIdle: false,
    };
    // Before the client hears it: whoever waits for the connection asks the next question in that very moment.
    wire.prependListener("readyForQuery", () => {
      watched.answeredAt = wire.stream.bytesWritten;
    });
    this.#watched.set(client, watched);
    client.once("end", () => this.#forget(client));
    this.#timer ??= setInterval(() => this.#tick(), TICK_MS).unref();
  }

  /** In a pool, in nobody's hands. */
  setIdle(client: ClientBase, isIdle: boolean): void {
    const watched = this.#watched.get(client);
    if (watched) watched.isIdle = isIdle;
  }

  #forget(client: ClientBase): void {
    this.#watched.delete(client);
    if (this.#watched.size > 0) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  #tick(): void {
    for (const [client, watched] of this.#watched) {
      const { stream } = watched.wire;
      if (stream.destroyed) this.#forget(client);
      else if (stream.bytesRead !== watched.bytesRead) {
        watched.bytesRead = stream.bytesRead;
        watched.quietMs = 0;
        watched.unansweredMs = 0;
      } else {
        watched.quietMs += TICK_MS;
        watched.unansweredMs = isAsking(watched) ? watched.unansweredMs + TICK_MS : 0;
      }
    }
    for (const [client, watched] of this.#watched)
      if (watched.unansweredMs >= this.#limitOf(watched)) {
        this.#destroy(client, watched);
        if (watched.openedAtMs > this.#suspectedAtMs) this.#suspectAll();
      }
  }

  #limitOf({ openedAtMs, limitMs }: Watched): number {
    return openedAtMs < this.#suspectedAtMs ? Math.min(limitMs, SUSPECT_LIMIT_MS) : limitMs;
  }

  /** Idle ones are opened anew when they are next wanted; those in use have to prove themselves. */
  #suspectAll(): void {
    this.#suspectedAtMs = performance.now();
    this.#onSilence();
    for (const [client, watched] of this.#watched)
      if (!isAsking(watched) && (watched.isIdle || watched.quietMs >= DORMANT_MS))
        this.#destroy(client, watched);
  }

  #destroy(client: ClientBase, watched: Watched): void {
    this.#forget(client);
    watched.wire.stream.destroy(new SilentConnection());
  }
}

/** Something was written since the server last said that it waits for us. */
const isAsking = ({ wire, answeredAt }: Watched): boolean => wire.stream.bytesWritten > answeredAt;
