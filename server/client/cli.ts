/** `purser me | spend | fetch | approval | listings | payments | payment`: JSON on stdout, the outcome as exit code. */
import { parseArgs } from "node:util";
import {
  ApprovalNeeded,
  Purser,
  PurserError,
  type QuoteRequest,
  type X402FetchRequest,
} from "./purser.ts";

const USAGE = `purser: pay from an agent's wallet

  purser me
  purser spend <recipient> <amount> [--memo TEXT] [--network ID]
  purser fetch <url> [--max AMOUNT] [--method M] [--header "Name: value"]... [--body TEXT] [--dry-run]
  purser fetch --listing <id> [--max AMOUNT]
  purser approval <id> [--wait SECONDS]
  purser listings [--search TEXT] [--max-price AMOUNT]
  purser payments
  purser payment <id>

  --request-approval      what a rule denies is asked of the owner, with --reason TEXT; --wait SECONDS waits and pays
  --idempotency-key KEY   repeat an earlier payment whose outcome is unknown, or which the owner has allowed

AGENT_API_KEY holds the key, PURSER_URL the server (http://localhost:3000).
Exit code: 0 done, 1 refused or failed, 2 wrong usage, 3 blocked by a limit or rule, 4 outcome unknown,
5 the owner is asked and has not decided.`;

export const EXIT = { done: 0, failed: 1, usage: 2, blocked: 3, unknown: 4, asked: 5 } as const;

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
  search: { type: "string" },
  "max-price": { type: "string" },
  "request-approval": { type: "boolean" },
  reason: { type: "string" },
  wait: { type: "string" },
  "idempotency-key": { type: "string" },
  help: { type: "boolean" },
} as const;

const parse = (args: string[]) =>
  parseArgs({ args, options: OPTIONS, allowPositionals: true, strict: true });
type Options = ReturnType<typeof parse>["values"];

/** Runs one command and returns the exit code. The key is read from the environment, never from arguments. */
export async function main(
  args: string[],
  env: Record<string, string | undefined>,
  print: (line: string) => void,
): Promise<number> {
  try {
    const { values, positionals } = parse(args);
    const [command, ...rest] = positionals;
    if (values.help || command === undefined) {
      print(USAGE);
      return values.help ? EXIT.done : EXIT.usage;
    }
    const apiKey = env["AGENT_API_KEY"] ?? "";
    if (apiKey === "" && command !== "listings")
      throw new UsageError("set AGENT_API_KEY to the agent's key");
    const purser = new Purser({ apiKey, baseUrl: env["PURSER_URL"] ?? "http://localhost:3000" });
    const answer = await run(purser, command, rest, values);
    print(JSON.stringify(answer, null, 2));
    return wasNotDelivered(answer) ? EXIT.failed : EXIT.done;
  } catch (error) {
    return report(error, print);
  }
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

/** The target answered a fetch with an error of its own, for nothing. */
const wasNotDelivered = (answer: unknown): boolean => {
  const { delivered, dryRun } = answer as { delivered?: unknown; dryRun?: unknown };
  return delivered === false && dryRun !== true;
};

function report(error: unknown, print: (line: string) => void): number {
  if (error instanceof ApprovalNeeded) {
    print(JSON.stringify(error.approval, null, 2));
    return error.status === "declined" ? EXIT.blocked : EXIT.asked;
  }
  if (error instanceof PurserError) {
    const { problem, idempotencyKey } = error;
    print(JSON.stringify({ ...problem, ...given({ idempotencyKey }) }, null, 2));
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
  if (!/^[0-9]{1,5}$/.test(text)) throw new UsageError("--wait is a number of seconds");
  return Number(text);
}

function need(value: string | undefined, what: string): string {
  if (value === undefined) throw new UsageError(`${what} is missing`);
  return value;
}

/** Only what was given: an absent option is absent on the wire. */
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
      if (colon < 1) throw new UsageError(`--header wants "Name: value"`);
      return [line.slice(0, colon).trim(), line.slice(colon + 1).trim()];
    }),
  );
}

function quotable(request: X402FetchRequest): QuoteRequest {
  const { method, body, ...rest } = request;
  if (body !== undefined || (method !== undefined && method !== "GET" && method !== "HEAD"))
    throw new UsageError("--dry-run asks with GET or HEAD, without --body");
  return { ...rest, ...(method === undefined ? {} : { method }) };
}

const METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"] as const;
function method(text: string | undefined): { method?: (typeof METHODS)[number] } {
  if (text === undefined) return {};
  const found = METHODS.find((candidate) => candidate === text.toUpperCase());
  if (!found) throw new UsageError(`--method is one of ${METHODS.join(", ")}`);
  return { method: found };
}
