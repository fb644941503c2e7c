/** A dedicated connection for LISTEN/NOTIFY that reconnects by itself. */
import { EventEmitter } from "node:events";
import type { Client } from "pg";
import { connectionSettings, TIMEOUTS } from "./pool.ts";
import { PrimaryClient } from "./primary.ts";
import type { SilenceWatch } from "./silence.ts";

const FIRST_RETRY_MS = 100;
const LAST_RETRY_MS = 5_000;
/** The connection may be quiet for hours, so it is queried regularly; then silence means that it is broken. */
const HEARTBEAT_MS = 1_000;
const TIMEOUT_MS = 2_500;

interface ListenerOptions {
  connectionString: string;
  silence: SilenceWatch;
  /** Called after each (re)connection: notifications may have been missed, so waiting code must check again. */
  onConnected?: () => void;
  onTrouble?: (error: unknown) => void;
}

export class Listener {
  readonly #options: ListenerOptions;
  readonly #events = new EventEmitter();
  readonly #channels = new Set<string>();
  #client: Client | undefined;
  #retryMs = FIRST_RETRY_MS;
  #timer: NodeJS.Timeout | undefined;
  #heartbeat: NodeJS.Timeout | undefined;
  #closed = false;

  constructor(options: ListenerOptions) {
    this.#options = options;
  }

  on(channel: string, handler: (payload: string) => void): void {
    this.#channels.add(channel);
    this.#events.on(channel, handler);
  }

  /** Never throws: if the database is unreachable, it retries in the background. */
  async connect(): Promise<void> {
    if (this.#closed) return;
    const client = new PrimaryClient({
      ...connectionSettings(this.#options.connectionString, TIMEOUTS.requests),
      application_name: "purser listener",
    });
    client.on("notification", ({ channel, payload }) => {
      this.#events.emit(channel, payload ?? "");
    });
    let lost = false;
    const lose = (error: unknown): void => {
      if (lost || this.#closed) return;
      lost = true;
      clearInterval(this.#heartbeat);
      this.#client = undefined;
      void quietly(client);
      this.#options.onTrouble?.(error);
      this.#timer = setTimeout(() => void this.connect(), this.#retryMs);
      this.#timer.unref();
      this.#retryMs = Math.min(this.#retryMs * 2, LAST_RETRY_MS);
    };
    client.on("error", lose);
    client.on("end", () => lose(new Error("the connection ended")));
    try {
      await client.connect();
      this.#options.silence.watch(client, TIMEOUT_MS);
      for (const channel of this.#channels) await client.query(`LISTEN ${channel}`);
      // Closed while it was still connecting: nothing else holds this connection.
      if (this.#closed) return void quietly(client);
      this.#client = client;
      this.#beat(client);
      this.#retryMs = FIRST_RETRY_MS;
      this.#options.onConnected?.();
    } catch (error) {
      lose(error);
    }
  }

  #beat(client: Client): void {
    let isQuerying = false;
    this.#heartbeat = setInterval(() => {
      if (isQuerying) return;
      isQuerying = true;
      // If no response comes, SilenceWatch detects it and ends the connection.
      void client
        .query("SELECT 1")
        .catch(() => undefined)
        .finally(() => {
          isQuerying = false;
        });
    }, HEARTBEAT_MS).unref();
  }

  async close(): Promise<void> {
    this.#closed = true;
    clearInterval(this.#heartbeat);
    clearTimeout(this.#timer);
    if (this.#client) await quietly(this.#client);
  }
}

/** Ends the connection; one that is already lost needs no clean end. */
async function quietly(client: Client): Promise<void> {
  try {
    await client.end();
  } catch {}
}
