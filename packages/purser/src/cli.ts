/** The `purser` command line: JSON on stdout, the outcome as exit code. */
import { parseArgs } from "node:util";
import { type Page, Purser, type QuoteRequest } from "./client.ts";
import { connect, terminal } from "./connect.ts";
import { init, stopOrResume } from "./init.ts";
import { ApprovalNeeded, deliveredIn, PurserError } from "./problem.ts";
import { type Env, missingKey, readServiceSettings } from "./settings.ts";
import type { FetchResult, ListingSummary, ValidateRequest, X402FetchRequest } from "./types.ts";
import { memberText, textOf } from "./transport.ts";
import { argumentsOf, USAGE, usageOf } from "./usage.ts";
import { validationText } from "./validation.ts";
import { VERSION } from "./version.ts";

const EXIT = { done: 0, failed: 1, usage: 2, blocked: 3, unknown: 4, undecided: 5 } as const;

/** Commands without a key. */
const KEYLESS = new Set(["listings", "validate"]);

class UsageError extends Error {}

const OPTIONS = {
  memo: { type: "string" },
  task: { type: "string" },
  limit: { type: "string" },
  expires: { type: "string" },
  network: { type: "string" },
  max: { type: "string" },
  method: { type: "string" },
  header: { type: "string", multiple: true },
  body: { type: "string" },
  "dry-run": { type: "boolean" },
  raw: { type: "boolean" },
  detail: { type: "string" },
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
  json: { type: "boolean" },
  yes: { type: "boolean" },
  version: { type: "boolean" },
  help: { type: "boolean" },
} as const;

const parse = (args: string[]) =>
  parseArgs({ args, options: OPTIONS, allowPositionals: true, strict: true });
type Options = ReturnType<typeof parse>["values"];

/** Where the result goes besides whole lines. */
export interface Output {
  /** A person reads it, so JSON is indented. Programs and models get it on one line. */
  isTerminal: boolean;
  /** Content as it is. */
  write(content: string | Uint8Array): void;
  /** Beside the result, on stderr. */
  note(line: string): void;
}

/**
 * Runs one command and returns the exit code. The key is read from the environment or a file, never from
 * arguments, which other users can see.
 */
export async function main(
  args: string[],
  env: Env,
  print: (line: string) => void,
  output: Output = { isTerminal: false, write: (content) => print(String(content)), note: print },
): Promise<number> {
  const show = (value: unknown): void =>
    print(JSON.stringify(value, null, output.isTerminal ? 2 : undefined));
  try {
    const { values, positionals } = parse(args);
    const [command, ...rest] = positionals;
    if (values.version) {
      print(VERSION);
      return EXIT.done;
    }
    if (values.help || command === undefined) {
      print(values.help ? usageOf(command) : USAGE);
      return values.help ? EXIT.done : EXIT.usage;
    }
    assertTaken(command, rest, values);
    if (command === "stop" || command === "resume") {
      show(await stopOrResume(command, given({ keyFile: values["key-file"] }), env));
      return EXIT.done;
    }
    if (command === "init" || command === "connect") {
      const done = await setUp(command, rest, values, env);
      show(done);
      return hasRefused(done) ? EXIT.failed : EXIT.done;
    }
    if (command === "receipt") {
      // Loaded only here, because few other commands need the signature library.
      const { checkReceipt } = await import("./receipt.ts");
      const checked = await checkReceipt(need(rest[0], "a receipt's URL or file"));
      show(checked);
      return checked.valid ? EXIT.done : EXIT.failed;
    }
    const settings = readServiceSettings(env);
    if (settings.apiKey === "" && !KEYLESS.has(command))
      throw new UsageError(missingKey(env, settings.url));
    if (command === "mcp") {
      // Loaded only here, because no other command needs the MCP library.
      await (await import("./mcp.ts")).serveStdio(settings);
      return EXIT.done;
    }
    const purser = new Purser({ apiKey: settings.apiKey, baseUrl: settings.url });
    if (command === "validate") {
      const checked = await purser.validate(wanted(rest, values));
      if (values.json) show(checked);
      else print(validationText(checked));
      return checked.ok ? EXIT.done : EXIT.failed;
    }
    const answer = await run(purser, command, rest, values);
    if (command !== "fetch") {
      show(answer);
      return EXIT.done;
    }
    const fetched = answer as FetchResult;
    if (values.raw) showContent(fetched, output);
    else show(fetched);
    return isFetched(fetched) ? EXIT.done : EXIT.failed;
  } catch (error) {
    return report(error, args, show);
  }
}

/** An option that a command would ignore is refused: `spend --dry-run` must not pay. */
function assertTaken(command: string, rest: string[], values: Options): void {
  const taken = argumentsOf(command);
  if (!taken) throw new UsageError(`there is no command "${command}"`);
  const [unknown] = Object.keys(values).filter((name) => !taken.options.has(name));
  if (unknown !== undefined) throw new UsageError(`purser ${command} has no option --${unknown}`);
  if (rest.length > taken.atMost)
    throw new UsageError(`purser ${command} does not take "${rest[taken.atMost]}"`);
}

/** Statuses without content. */
const EMPTY: ReadonlySet<unknown> = new Set([204, 205, 304]);

/** The content alone, so that it can be piped into another program. */
function showContent(fetched: FetchResult, output: Output): void {
  const { data, text, dataBase64, paid, amountPaid, txHash, paymentId, channel } = fetched;
  if (dataBase64 !== undefined) output.write(Buffer.from(dataBase64, "base64"));
  else if (text !== undefined) output.write(text);
  else if (data !== undefined && !EMPTY.has(fetched.status))
    output.write(`${memberText(textOf.get(fetched), "data") ?? JSON.stringify(data)}\n`);
  const how = channel ? `channel ${channel.id}` : `transaction ${txHash}`;
  if (paid) output.note(`Paid ${amountPaid} USDC: payment ${paymentId}, ${how}.`);
  if (fetched.note !== undefined) output.note(fetched.note);
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
  const detail = detailOf(options.detail);
  const ofTask = given({ task: options.task });
  switch (command) {
    case "me":
      return purser.me(detail);
    case "spend":
      return purser.spend(
        {
          recipient: need(rest[0], "a recipient"),
          amount: need(rest[1], "an amount"),
          ...given({ memo: options.memo, network: options.network }),
          ...ofTask,
          ...asking,
        },
        call,
      );
    case "fetch": {
      if (options.listing !== undefined && rest.length > 0)
        throw new UsageError("give a URL or --listing, not both");
      const target =
        options.listing === undefined
          ? { url: need(rest[0], "a URL or --listing") }
          : { listingId: options.listing };
      const request = {
        ...target,
        ...given({ mcp: tool(options) }),
        ...given({ maxAmount: options.max, body: options.body, headers: headers(options.header) }),
        ...method(options.method),
        ...ofTask,
        ...asking,
        ...detail,
      };
      if (options.raw && options["dry-run"])
        throw new UsageError("--raw prints content, and --dry-run has none");
      return options["dry-run"] ? purser.quote(quotable(request)) : purser.fetch(request, call);
    }
    case "approval": {
      const id = need(rest[0], "an approval id");
      return waitSeconds === undefined
        ? purser.approval(id)
        : purser.waitForApproval(id, { timeoutMs: waitSeconds * 1_000 });
    }
    case "listings":
      return shortened(
        await purser.listings({
          ...given({ search: options.search, maxPrice: options["max-price"] }),
          ...detail,
        }),
        detail,
      );
    case "payments":
      return purser.payments({ ...detail, ...ofTask });
    case "payment":
      return purser.payment(need(rest[0], "a payment id"));
    case "task":
      return runTask(purser, rest, options);
    default:
      throw new UsageError(`there is no command "${command}"`);
  }
}

function runTask(purser: Purser, [what, id]: string[], options: Options): Promise<unknown> {
  switch (what) {
    case "open": {
      const limit = need(options.limit, "--limit");
      const terms = given({ expiresAt: options.expires, name: options.name });
      return purser.openTask({ id: need(id, "a task id"), limit, ...terms });
    }
    case "close":
      return purser.closeTask(need(id, "a task id"));
    case "show":
      return purser.task(need(id, "a task id"));
    case "list":
      return purser.tasks();
    default:
      throw new UsageError("use task open, close, show or list");
  }
}

/** Done here, because older services know no `detail` of listings. */
function shortened(
  page: Page<ListingSummary>,
  { detail = "short" }: { detail?: "short" | "full" },
): Page<ListingSummary> {
  if (detail === "full") return page;
  const items = page.items.map((listing) => {
    const { id, url, method, network, price, maximum } = listing;
    const { uses, payers, similarTo, thirdParty } = listing;
    const { untrusted, name, description, category } = thirdParty;
    const texts = { untrusted, name, description, category };
    const facts = given({ payers, similarTo: similarTo ?? undefined });
    const most = given({ maximum });
    return { id, url, method, network, price, ...most, uses, ...facts, thirdParty: texts };
  });
  return { ...page, items };
}

function report(error: unknown, args: string[], show: (value: unknown) => void): number {
  if (error instanceof ApprovalNeeded) {
    show(error.approval);
    return error.status === "declined" ? EXIT.blocked : EXIT.undecided;
  }
  if (error instanceof PurserError) {
    const { problem, idempotencyKey } = error;
    // The rest of the problem document repeats what these say.
    const { type: _type, title: _title, success: _success, error: _error, ...needed } = problem;
    // The problem may contain the delivered response already; then it is not printed twice.
    const delivered = deliveredIn(problem) ? undefined : error.delivered;
    show({ ...needed, ...given({ idempotencyKey, delivered }) });
    if (problem.blocked === true) return EXIT.blocked;
    return problem.code === "payment_status_unknown" || problem.code === "no_answer"
      ? EXIT.unknown
      : EXIT.failed;
  }
  show({
    code: "usage",
    // Node's advice on arguments that begin with a hyphen does not apply here.
    detail: messageOf(error).split(". To specify a positional argument")[0],
    suggestion: helpFor(args),
  });
  return EXIT.usage;
}

const messageOf = (error: unknown): string =>
  error instanceof Error ? error.message : String(error);

const helpFor = ([command = ""]: string[]): string =>
  argumentsOf(command) ? `purser ${command} --help` : "purser --help";

function seconds(text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  if (!/^[0-9]{1,5}$/.test(text)) throw new UsageError("--wait must be a number of seconds");
  return Number(text);
}

function detailOf(text: string | undefined): { detail?: "short" | "full" } {
  if (text === undefined) return {};
  if (text !== "short" && text !== "full") throw new UsageError("--detail must be short or full");
  return { detail: text };
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

/** What to validate; the service refuses other methods. */
const wanted = (rest: string[], { method: text, body }: Options): ValidateRequest => ({
  url: need(rest[0], "a URL"),
  ...given({ body, method: text?.toUpperCase() as ValidateRequest["method"] }),
});

const METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"] as const;
function method(text: string | undefined): { method?: (typeof METHODS)[number] } {
  if (text === undefined) return {};
  const found = METHODS.find((candidate) => candidate === text.toUpperCase());
  if (!found) throw new UsageError(`--method must be one of ${METHODS.join(", ")}`);
  return { method: found };
}
