/**
 * Detects database connections that went silent: after a failover, or behind a proxy that dropped them, neither data
 * nor an error arrives until TCP gives up. If no byte arrives for longer than the server itself would let a query run,
 * the connection is destroyed. Its query fails (whether it was carried out is unknown), and all other connections
 * become suspect.
 */
import type { ClientBase } from "pg";

const TICK_MS = 250;
/** Once one connection was found silent, older ones get at most this long. */
const SUSPECT_LIMIT_MS = 1_500;
/** Connections without queries (listeners) are renewed together with the idle ones. */
const DORMANT_MS = 10_000;

/** Internals of a pg client, which its types do not contain. */
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
  /** How many bytes had been written when the server was last ready for a query. */
  answeredAt: number;
  bytesRead: number;
  /**
   * Time without a byte, and the part of it with an open query. Counted in ticks, because a process that was stopped
   * could not read.
   */
  quietMs: number;
  unansweredMs: number;
  isIdle: boolean;
}

class SilentConnection extends Error {
  override name = "SilentConnection";
  constructor() {
    super("Connection terminated: the database did not respond on it");
  }
}

/** One for all connections of a process: what one of them detects counts for all. */
export class SilenceWatch {
  readonly #watched = new Map<ClientBase, Watched>();
  readonly #onSilence: () => void;
  #timer: NodeJS.Timeout | undefined;
  #suspectedAtMs = Number.NEGATIVE_INFINITY;

  constructor(onSilence: () => void = () => undefined) {
    this.#onSilence = onSilence;
  }

  /**
   * Watches a connection from its start. The limit is above the statement timeout, so that only silence can exceed it.
   */
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
    // Before the client's own listener, because a caller that waits for the connection sends the next query from it.
    wire.prependListener("readyForQuery", () => {
      watched.answeredAt = wire.stream.bytesWritten;
    });
    this.#watched.set(client, watched);
    client.once("end", () => this.#forget(client));
    this.#timer ??= setInterval(() => this.#tick(), TICK_MS).unref();
  }

  /** Marks a connection as idle in its pool. */
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
        watched.unansweredMs = hasOpenQuery(watched) ? watched.unansweredMs + TICK_MS : 0;
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

  /** Closes idle connections, which are reopened on demand. Those in use get a shorter limit to respond. */
  #suspectAll(): void {
    this.#suspectedAtMs = performance.now();
    this.#onSilence();
    for (const [client, watched] of this.#watched)
      if (!hasOpenQuery(watched) && (watched.isIdle || watched.quietMs >= DORMANT_MS))
        this.#destroy(client, watched);
  }

  #destroy(client: ClientBase, watched: Watched): void {
    this.#forget(client);
    watched.wire.stream.destroy(new SilentConnection());
  }
}

/** Bytes were written since the server was last ready for a query. */
const hasOpenQuery = ({ wire, answeredAt }: Watched): boolean =>
  wire.stream.bytesWritten > answeredAt;
