/**
 * While the database or the chain is away, every request and every loop fails for the same reason. The first line of
 * each kind is written at once. The others are counted, and one line a second has the counts. Everything else is
 * written as usual.
 */
import type { LogFn, Logger } from "pino";
import { ApiError } from "../errors.ts";
import { ChainUnreachable } from "./chain/errors.ts";
import { isDatabaseUnavailable, sources } from "./db/pool.ts";

type Outage = "database" | "chain";

const SUMMARY_MS = 1_000;
/** Beyond this many kinds of lines in one outage, further ones are counted together. */
const MOST_KINDS = 50;
const WARN = 40;
const FATAL = 60;

/** A hook of pino, for a logger and all its children. */
export function outageLog(summaryMs = SUMMARY_MS) {
  const outages: Record<Outage, Counted> = {
    database: new Counted(summaryMs),
    chain: new Counted(summaryMs),
  };
  return function logMethod(
    this: Logger,
    args: Parameters<LogFn>,
    method: LogFn,
    level: number,
  ): void {
    const [fields, text] = args as [unknown, unknown];
    const error = fields instanceof Error ? fields : (fields as { err?: unknown } | null)?.err;
    // An alarm is about one payment or one key.
    const isCounted = level >= WARN && level < FATAL && !isAlarm(fields);
    const outage = isCounted && error instanceof Error ? outageOf(error) : undefined;
    if (outage === undefined) return method.apply(this, args);
    const own = fields instanceof Error ? { err: fields } : (fields as object);
    const kind = `${String(text)} (${[...networkOf(this, own), causeOf(error as Error)].join(", ")})`;
    outages[outage].add(kind, (leftOut) =>
      method.call(this, { ...own, outage, ...(leftOut && { leftOut }) }, text as string),
    );
  };
}

const isAlarm = (fields: unknown): boolean =>
  typeof fields === "object" && fields !== null && "alarm" in fields;

function outageOf(error: Error): Outage | undefined {
  if (isDatabaseUnavailable(error)) return "database";
  for (let link: unknown = error; link instanceof Error; link = link.cause)
    if (
      link instanceof ChainUnreachable ||
      (link instanceof ApiError && link.code === "chain_unavailable")
    )
      return "chain";
  return undefined;
}

/** Of the line itself, or of the part that writes it. */
function networkOf(log: Logger, own: object): string[] {
  const { network } = { ...log.bindings(), ...own } as { network?: unknown };
  return typeof network === "string" ? [network] : [];
}

/**
 * The innermost error: its code, or its message without numbers, which differ between two lines about the same cause.
 * The code of one of our own errors is the same for many causes.
 */
function causeOf(error: Error): string {
  const { error: link, code, originalCode } = sources(error).at(-1) ?? { error };
  const known = originalCode ?? (link instanceof ApiError ? undefined : code);
  return known ?? (link.message.split("\n")[0] ?? "").replaceAll(/0x[0-9a-f]+|\d+/gi, "#");
}

type Write = (leftOut?: Record<string, number>) => void;

class Counted {
  readonly #summaryMs: number;
  /** The kinds of lines that were written since the outage began. */
  readonly #seen = new Set<string>();
  readonly #left = new Map<string, number>();
  #last: { kind: string; write: Write } | undefined;
  #timer: NodeJS.Timeout | undefined;

  constructor(summaryMs: number) {
    this.#summaryMs = summaryMs;
  }

  add(kind: string, write: Write): void {
    this.#timer ??= setInterval(() => this.#summarize(), this.#summaryMs).unref();
    if (!this.#seen.has(kind) && this.#seen.size < MOST_KINDS) {
      this.#seen.add(kind);
      return write();
    }
    const counted = this.#seen.has(kind) ? kind : "other";
    this.#left.set(counted, (this.#left.get(counted) ?? 0) + 1);
    this.#last = { kind: counted, write };
  }

  /** Writes the newest line with the counts of the others. After a second without a line the outage is over. */
  #summarize(): void {
    const last = this.#last;
    if (!last) {
      clearInterval(this.#timer);
      this.#timer = undefined;
      return this.#seen.clear();
    }
    const others = [...this.#left].flatMap(([kind, count]) => {
      const left = kind === last.kind ? count - 1 : count;
      return left > 0 ? [[kind, left] as const] : [];
    });
    this.#left.clear();
    this.#last = undefined;
    last.write(others.length > 0 ? Object.fromEntries(others) : undefined);
  }
}
