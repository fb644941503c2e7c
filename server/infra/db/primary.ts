/**
 * Connections that only ever reach the Postgres primary (failover). Of several hosts, the one that is not in recovery
 * is used, and each new connection is checked. A promotion starts a new timeline: once this process has seen it, a
 * server on an older timeline is a former primary that came back. It is refused, and open connections to it are cut.
 */
import { setMaxListeners } from "node:events";
import { Client, type ClientConfig } from "pg";

/** How long to wait for other servers that may be on a newer timeline. */
const OTHERS_MS = 250;
const QUERY_TIMEOUT_MS = 1_500;
const ANSWER_MS = 5_000;
/** Connections that are opened within this time share one check. */
const FRESH_MS = 500;
/** With several hosts: how soon a promotion is noticed by a process that still reaches the old primary. */
const WATCH_MS = 3_000;

export interface PrimaryConfig extends ClientConfig {
  /** One per host, in order. */
  urls: string[];
  /** Named statements belong to a session, and a transaction pooler has none. */
  isPooled?: boolean;
}

interface Identity {
  standby: boolean;
  /** Null if the server does not return it: some services are compatible with Postgres but have no such WAL. */
  system: string | null;
  timeline: number | null;
}

/**
 * The timeline of the WAL that is being written, and not of the last checkpoint, which right after a promotion is still
 * the old one. The same round trip raises synchronous_commit: a commit that is reported before it is on disk may be
 * lost, and the payment made again.
 */
const RAISED = `CASE WHEN current_setting('synchronous_commit') IN ('off', 'local')
              THEN set_config('synchronous_commit', 'on', false) END AS raised`;
const IDENTIFY = `
  SELECT pg_is_in_recovery() AS standby,
         (SELECT system_identifier::text FROM pg_control_system()) AS system,
         CASE WHEN NOT pg_is_in_recovery()
              THEN ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int END AS timeline,
         ${RAISED}`;
const IDENTIFY_ROLE = `SELECT pg_is_in_recovery() AS standby, NULL AS system, NULL AS timeline, ${RAISED}`;
/** No such function, or not allowed for this role. */
const UNKNOWN = new Set(["42883", "42501", "0A000"]);
/** Postgres: a write on a read-only server, which used to be the primary. */
const READ_ONLY = "25006";

/** Its message counts as "the database cannot be reached now" (pool.ts). */
class NotThePrimary extends Error {
  override name = "NotThePrimary";
  constructor(why: string) {
    super(`Can't reach database server: ${why}`);
  }
}

/**
 * The errors of connections to Postgres themselves. Outbound HTTP raises the same codes. Neither a stack nor a class
 * name can tell them apart, because the compiled server keeps neither.
 */
const ofConnections = new WeakSet<Error>();
export const isOfConnection = (error: Error): boolean => ofConnections.has(error);

const raised = new EventTarget();
// Several apps share one process in tests, and each has a listener per network.
setMaxListeners(0, raised);

/** Notifies when another server was promoted while this process is running. */
export const onPromotion = (listener: () => void, signal: AbortSignal): void =>
  raised.addEventListener("promotion", listener, { signal });

/**
 * What this process knows of one database system, by its identifier: its newest timeline, and the timeline of each open
 * connection.
 */
class Lineage {
  #newest = 0;
  readonly #open = new Map<PrimaryClient, number>();

  /** Throws for a timeline older than the newest; a newer one ends all connections to older ones. */
  admit(timeline: number, client?: PrimaryClient): void {
    if (timeline < this.#newest)
      throw new NotThePrimary(
        `it is an old primary on timeline ${timeline}; the current timeline is ${this.#newest}`,
      );
    const isPromotion = this.#newest > 0 && timeline > this.#newest;
    this.#newest = timeline;
    for (const [other, on] of this.#open)
      if (on < timeline) {
        this.#open.delete(other);
        other.cut(`a newer timeline ${timeline} has started`);
      }
    if (client) {
      this.#open.set(client, timeline);
      client.once("end", () => this.#open.delete(client));
    }
    if (isPromotion) raised.dispatchEvent(new Event("promotion"));
  }
}
const lineages = new Map<string, Lineage>();

/** The hosts of one DATABASE_URL. */
class Servers {
  readonly #urls: string[];
  #found: { atMs: number; place: Promise<string> } | undefined;
  #watch: NodeJS.Timeout | undefined;
  #clients = 0;
  /**
   * The database system that was found first. A different one is a restored copy or another database, and is refused.
   */
  #system: string | undefined;

  constructor(urls: string[]) {
    this.#urls = urls;
  }

  /** The URL of the primary; of two, the one on the newer timeline. */
  async primary(config: PrimaryConfig): Promise<string> {
    const [only] = this.#urls;
    if (only !== undefined && this.#urls.length === 1) return only;
    if (!this.#found || performance.now() - this.#found.atMs > FRESH_MS)
      this.#found = { atMs: performance.now(), place: this.#query(config) };
    return this.#found.place;
  }

  /** Throws if the server must not be written to. */
  admit({ standby, system, timeline }: Identity, client?: PrimaryClient): void {
    if (standby) throw new NotThePrimary("it is a standby");
    if (system === null || timeline === null) return;
    this.#system ??= system;
    if (system !== this.#system)
      throw new NotThePrimary(
        `it belongs to a different database system (${system}, not ${this.#system}); restart the service if this is intended`,
      );
    const lineage = lineages.get(system) ?? new Lineage();
    lineages.set(system, lineage);
    lineage.admit(timeline, client);
  }

  /**
   * While there are connections, checks all hosts regularly: another host may be promoted without breaking any
   * connection.
   */
  watch(config: PrimaryConfig, client: PrimaryClient): void {
    if (this.#urls.length === 1) return;
    this.#clients += 1;
    this.#watch ??= setInterval(() => {
      this.#query(config).catch(() => undefined);
    }, WATCH_MS).unref();
    client.once("end", () => {
      this.#clients -= 1;
      if (this.#clients > 0) return;
      clearInterval(this.#watch);
      this.#watch = undefined;
    });
  }

  async #query(config: PrimaryConfig): Promise<string> {
    const answers: (Identity & { url: string })[] = [];
    const reasons: string[] = [];
    const identifyBy = async (url: string): Promise<void> => {
      try {
        answers.push({ ...(await identifyServer(config, url)), url });
      } catch (error) {
        const { code, message } = error as { code?: string; message: string };
        reasons.push(`${new URL(url).host} ${code ?? message}`);
      }
    };
    await new Promise<void>((resolve) => {
      let open = this.#urls.length;
      for (const url of this.#urls)
        void identifyBy(url).finally(() => {
          open -= 1;
          if (open === 0) resolve();
          else if (answers.some(({ standby }) => !standby)) setTimeout(resolve, OTHERS_MS);
        });
    });
    const primaries = answers
      .filter(({ standby }) => !standby)
      .sort((a, b) => (b.timeline ?? 0) - (a.timeline ?? 0));
    const [newest] = primaries;
    if (!newest) {
      const standbys = answers.map(({ url }) => `${new URL(url).host} is a standby`);
      throw new NotThePrimary(`no primary (${[...standbys, ...reasons].join(", ")})`);
    }
    this.admit(newest);
    return newest.url;
  }
}
/** Per process: the state is about servers, and every process finds it out in the same way. */
const known = new Map<string, Servers>();

function serversOf(urls: string[]): Servers {
  const key = urls.join(" ");
  const servers = known.get(key) ?? new Servers(urls);
  known.set(key, servers);
  return servers;
}

async function identifyServer(config: PrimaryConfig, url: string): Promise<Identity> {
  const { urls: _urls, ...rest } = config;
  const client = new Client({
    ...rest,
    connectionString: url,
    connectionTimeoutMillis: QUERY_TIMEOUT_MS,
  });
  client.on("error", () => undefined);
  const late = setTimeout(() => destroy(client, "it did not respond"), QUERY_TIMEOUT_MS);
  try {
    await client.connect();
    return await identify(client);
  } finally {
    clearTimeout(late);
    void client.end().catch(() => undefined);
  }
}

async function identify(client: Pick<Client, "query">): Promise<Identity> {
  const identifyBy = async (text: string): Promise<Identity> => {
    // SQL: the role of this server, before anything else.
    const { rows } = await client.query<Identity>(text);
    return rows[0] as Identity;
  };
  try {
    return await identifyBy(IDENTIFY);
  } catch (error) {
    if (!UNKNOWN.has((error as { code?: string }).code ?? "")) throw error;
    return identifyBy(IDENTIFY_ROLE);
  }
}

/** Internals of a pg client, which its types do not contain. */
interface Wire {
  stream: { destroy(error: Error): void };
  on(event: "errorMessage", listener: (message: { code?: string }) => void): void;
  on(event: "error", listener: (error: Error) => void): void;
}

function destroy(client: Client, why: string): void {
  const { connection } = client as unknown as { connection: Wire };
  connection.stream.destroy(new Error(`Connection terminated: ${why}`));
}

/** The same object reaches every caller: of `connect`, of an open query, and of the pool. */
function noteErrors(client: Client): Wire {
  const { connection } = client as unknown as { connection: Wire };
  connection.on("error", (error) => void ofConnections.add(error));
  return connection;
}

/** A connection to a standby, for reads. */
export class StandbyClient extends Client {
  constructor(config: ClientConfig) {
    super(config);
    noteErrors(this);
  }
}

export class PrimaryClient extends Client {
  readonly #config: PrimaryConfig;

  constructor(config: PrimaryConfig) {
    super(config);
    this.#config = config;
    // The connection may be lost before its owner adds a listener.
    this.on("error", () => undefined);
    const connection = noteErrors(this);
    connection.on("errorMessage", ({ code }) => {
      if (code === READ_ONLY) setImmediate(() => this.cut("the server became read-only"));
    });
    if (config.isPooled) {
      const query = this.query.bind(this) as (...args: unknown[]) => unknown;
      this.query = ((first: unknown, ...rest: unknown[]) =>
        query(withoutName(first), ...rest)) as typeof this.query;
    }
  }

  override connect(): Promise<Client>;
  override connect(connected: (error: Error) => void): void;
  override connect(connected?: (error: Error) => void): Promise<Client> | void {
    const connecting = this.#connect();
    if (!connected) return connecting;
    // pg's own pool takes "no error" for success.
    connecting.then(() => (connected as () => void)(), connected);
  }

  /** All open queries fail, and whether they were carried out is unknown. */
  cut(why: string): void {
    destroy(this, why);
  }

  async #connect(): Promise<Client> {
    const servers = serversOf(this.#config.urls);
    const { hostname, port } = new URL(await servers.primary(this.#config));
    if (this.#config.urls.length > 1) {
      // pg reads these when it connects.
      this.host = hostname.replace(/^\[(.*)\]$/, "$1");
      this.port = Number(port === "" ? 5432 : port);
    }
    await super.connect();
    const late = setTimeout(() => this.cut("the database did not respond on it"), ANSWER_MS);
    try {
      servers.admit(await identify(this), this);
    } catch (error) {
      void this.end().catch(() => undefined);
      throw error;
    } finally {
      clearTimeout(late);
    }
    servers.watch(this.#config, this);
    return this;
  }
}

function withoutName(query: unknown): unknown {
  if (typeof query !== "object" || query === null || !("name" in query) || "submit" in query)
    return query;
  return { ...query, name: undefined };
}
