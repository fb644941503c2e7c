/** The `purser` command line: JSON on stdout, the outcome as exit code. */
import { parseArgs } from "node:util";
import { Purser, type QuoteRequest } from "./client.ts";
import { connect, terminal } from "./connect.ts";
import { init } from "./init.ts";
import { ApprovalNeeded, deliveredIn, PurserError } from "./problem.ts";
import { type Env, readServiceSettings } from "./settings.ts";
import type { FetchResult, X402FetchRequest } from "./types.ts";
import { VERSION } from "./version.ts";

export const USAGE = `purser ${VERSION}: pay from an agent's wallet

  purser me
  purser spend <recipient> <amount> [--memo TEXT] [--network ID]
  purser fetch <url> [--max AMOUNT] [--method M] [--header "Name: value"]... [--body TEXT] [--dry-run]
  purser fetch --listing <id> [--max AMOUNT]
  purser fetch <url> --mcp-tool NAME [--arguments JSON] [--max AMOUNT] [--dry-run]
  purser approval <id> [--wait SECONDS]
  purser listings [--search TEXT] [--max-price AMOUNT]
  purser payments
  purser payment <id>

  --request-approval      if a rule refuses, ask the owner, with --reason TEXT; --wait SECONDS waits and pays
  --idempotency-key KEY   repeat an earlier payment whose outcome is unknown or that the owner allowed

  purser init [--key-file FILE] [--name NAME] [--daily-limit AMOUNT] [--allow ADDRESS]... [--fund AMOUNT] [--save]
      signs in as an owner (a local service has a demo wallet), creates an agent, funds it if there is a faucet,
      and prints the key; --save stores URL and key in your configuration
  purser connect [CLIENT]... [--oauth] [--print] [--yes] [--name NAME]
      adds the wallet to the configuration of the agent programs on this machine, after it asks you
  purser mcp
      runs the wallet as an MCP server over stdio

AGENT_API_KEY holds the key, PURSER_URL the server (http://localhost:3000).
PURSER_KEY_NAME selects a key that init --save or connect stored, by its name.
Exit code: 0 done, 1 refused or failed, 2 wrong usage, 3 blocked by a limit or rule, 4 outcome unknown,
5 the owner has not decided yet.`;

const EXIT = { done: 0, failed: 1, usage: 2, blocked: 3, unknown: 4, undecided: 5 } as const;

class UsageError extends Error {}

const OPTIONS = {
  memo: { type: "string" },
  network: { type: "string" },
  max: { type: "string" },
  method: { type: "string" },
  header: { type: "string", multiple: true },
  body: { type: "string" },
  "dry-run": { type: "boolean" },
  listing: { type: "string" },
  "mcp-tool": { type: "string" },
  arguments: { type: "string" },
  search: { type: "string" },
  "max-price": { type: "string" },
  "request-approval": { type: "boolean" },
  reason: { type: "string" },
  wait: { type: "string" },
  "idempotency-key": { type: "string" },
  name: { type: "string" },
  "key-file": { type: "string" },
  "daily-limit": { type: "string" },
  allow: { type: "string", multiple: true },
  fund: { type: "string" },
  save: { type: "boolean" },
  oauth: { type: "boolean" },
  print: { type: "boolean" },
  yes: { type: "boolean" },
  version: { type: "boolean" },
  help: { type: "boolean" },
} as const;

const parse = (args: string[]) =>
  parseArgs({ args, options: OPTIONS, allowPositionals: true, strict: true });
type Options = ReturnType<typeof parse>["values"];

/**
 * Runs one command and returns the exit code. The key is read from the environment or a file, never from
 * arguments, which other users can see.
 */
export async function main(
  args: string[],
  env: Env,
  print: (line: string) => void,
): Promise<number> {
  try {
    const { values, positionals } = parse(args);
    const [command, ...rest] = positionals;
    if (values.version) {
      print(VERSION);
      return EXIT.done;
    }
    if (values.help || command === undefined) {
      print(USAGE);
      return values.help ? EXIT.done : EXIT.usage;
    }
    if (command === "init" || command === "connect") {
      const done = await setUp(command, rest, values, env);
      print(JSON.stringify(done, null, 2));
      return hasRefused(done) ? EXIT.failed : EXIT.done;
    }
    const settings = readServiceSettings(env);
    if (settings.apiKey === "" && command !== "listings")
      throw new UsageError("set AGENT_API_KEY to the agent's key");
    if (command === "mcp") {
      // Loaded only here, because no other command needs the MCP library.
      await (await import("./mcp.ts")).serveStdio(settings);
      return EXIT.done;
    }
    const purser = new Purser({ apiKey: settings.apiKey, baseUrl: settings.url });
    const answer = await run(purser, command, rest, values);
    print(JSON.stringify(answer, null, 2));
    return command === "fetch" && !isFetched(answer as FetchResult) ? EXIT.failed : EXIT.done;
  } catch (error) {
    return report(error, print);
  }
}

/** A 404 or 500 from the target is a failure of the command, even if it cost nothing. */
const isFetched = ({ delivered, dryRun }: FetchResult): boolean => delivered || dryRun === true;

/** One of the requested programs could not be connected. */
const hasRefused = (done: object): boolean =>
  "connected" in done &&
  (done.connected as { status: string }[]).some(({ status }) => status === "refused");

function setUp(
  command: "init" | "connect",
  rest: string[],
  options: Options,
  env: Env,
): Promise<object> {
  const { name, allow, fund, save, oauth, print, yes } = options;
  if (command === "connect")
    return connect({ only: rest, ...given({ name, oauth, print, yes }) }, env, terminal);
  const { "key-file": keyFile, "daily-limit": dailyLimit } = options;
  return init(given({ name, dailyLimit, allow, keyFile, fund, save }), env);
}

async function run(
  purser: Purser,
  command: string,
  rest: string[],
  options: Options,
): Promise<unknown> {
  const waitSeconds = seconds(options.wait);
  const call = given({
    idempotencyKey: options["idempotency-key"],
    waitForApprovalMs: waitSeconds === undefined ? undefined : waitSeconds * 1_000,
  });
  const asking = given({ requestApproval: options["request-approval"], reason: options.reason });
  switch (command) {
    case "me":
      return purser.me();
    case "spend":
      return purser.spend(
        {
          recipient: need(rest[0], "a recipient"),
          amount: need(rest[1], "an amount"),
          ...given({ memo: options.memo, network: options.network }),
          ...asking,
        },
        call,
      );
    case "fetch": {
      const target =
        options.listing === undefined
          ? { url: need(rest[0], "a URL or --listing") }
          : { listingId: options.listing };
      const request = {
        ...target,
        ...given({ mcp: tool(options) }),
        ...given({ maxAmount: options.max, body: options.body, headers: headers(options.header) }),
        ...method(options.method),
        ...asking,
      };
      return options["dry-run"] ? purser.quote(quotable(request)) : purser.fetch(request, call);
    }
    case "approval": {
      const id = need(rest[0], "an approval id");
      return waitSeconds === undefined
        ? purser.approval(id)
        : purser.waitForApproval(id, { timeoutMs: waitSeconds * 1_000 });
    }
    case "listings":
      return purser.listings(given({ search: options.search, maxPrice: options["max-price"] }));
    case "payments":
      return purser.payments();
    case "payment":
      return purser.payment(need(rest[0], "a payment id"));
    default:
      throw new UsageError(`there is no command "${command}"`);
  }
}

function report(error: unknown, print: (line: string) => void): number {
  if (error instanceof ApprovalNeeded) {
    print(JSON.stringify(error.approval, null, 2));
    return error.status === "declined" ? EXIT.blocked : EXIT.undecided;
  }
  if (error instanceof PurserError) {
    const { problem, idempotencyKey } = error;
    // The problem may contain the delivered response already; then it is not printed twice.
    const delivered = deliveredIn(problem) ? undefined : error.delivered;
    print(JSON.stringify({ ...problem, ...given({ idempotencyKey, delivered }) }, null, 2));
    if (problem.blocked === true) return EXIT.blocked;
    return problem.code === "payment_status_unknown" || problem.code === "no_answer"
      ? EXIT.unknown
      : EXIT.failed;
  }
  print(
    JSON.stringify(
      {
        code: "usage",
        detail: error instanceof Error ? error.message : String(error),
        suggestion: "purser --help",
      },
      null,
      2,
    ),
  );
  return EXIT.usage;
}

function seconds(text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  if (!/^[0-9]{1,5}$/.test(text)) throw new UsageError("--wait must be a number of seconds");
  return Number(text);
}

function need(value: string | undefined, what: string): string {
  if (value === undefined) throw new UsageError(`${what} is missing`);
  return value;
}

/** Omits undefined options, so that they are absent in the request too. */
function given<T extends Record<string, unknown>>(
  fields: T,
): { [K in keyof T]?: NonNullable<T[K]> } {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as {
    [K in keyof T]?: NonNullable<T[K]>;
  };
}

function headers(lines: string[] | undefined): Record<string, string> | undefined {
  if (lines === undefined) return undefined;
  return Object.fromEntries(
    lines.map((line) => {
      const colon = line.indexOf(":");
      if (colon < 1) throw new UsageError(`--header must be "Name: value"`);
      return [line.slice(0, colon).trim(), line.slice(colon + 1).trim()];
    }),
  );
}

function quotable(request: X402FetchRequest): QuoteRequest {
  const { method, body, ...rest } = request;
  if (body !== undefined || (method !== undefined && method !== "GET" && method !== "HEAD"))
    throw new UsageError("--dry-run works only with GET or HEAD and without --body");
  return { ...rest, ...(method === undefined ? {} : { method }) };
}

/** The tool call of a remote MCP server. */
function tool({ "mcp-tool": name, arguments: json }: Options): X402FetchRequest["mcp"] {
  if (name === undefined && json !== undefined)
    throw new UsageError("--arguments needs --mcp-tool");
  if (name === undefined) return undefined;
  if (json === undefined) return { tool: name };
  try {
    const args = JSON.parse(json) as unknown;
    if (typeof args === "object" && args !== null && !Array.isArray(args))
      return { tool: name, arguments: args as Record<string, unknown> };
  } catch {
    // The error is thrown below.
  }
  throw new UsageError("--arguments must be a JSON object");
}

const METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"] as const;
function method(text: string | undefined): { method?: (typeof METHODS)[number] } {
  if (text === undefined) return {};
  const found = METHODS.find((candidate) => candidate === text.toUpperCase());
  if (!found) throw new UsageError(`--method must be one of ${METHODS.join(", ")}`);
  return { method: found };
}
