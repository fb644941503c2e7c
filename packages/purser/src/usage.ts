/** The help of the command line: of all commands together, and of each one. */
import { VERSION } from "./version.ts";

interface Command {
  /** One line for each way to call it. */
  usage: string[];
  about: string;
  /** Options as they are written, with their meaning. */
  options?: Record<string, string>;
}

const DETAIL = {
  "--detail full": "every member of the answer; without it the ones that an agent needs",
};
const TASK = { "--task ID": "count the payment in this task, which you opened before" };
const APPROVAL = {
  "--request-approval": "if a rule refuses, ask the owner to allow this payment once",
  "--reason TEXT": "the reason, for the owner",
  "--wait SECONDS": "wait for the owner, and pay once it is allowed",
  "--idempotency-key KEY":
    "repeat an earlier payment whose outcome is unknown or that the owner allowed",
};

const COMMANDS: Record<string, Command> = {
  me: {
    usage: ["me [--detail full]"],
    about: "Shows the wallet, its balance, its limits and the allowed payees.",
    options: DETAIL,
  },
  spend: {
    usage: ["spend <recipient> <amount> [--memo TEXT] [--network ID] [--task ID]"],
    about: "Pays USDC to an address that the owner allowed.",
    options: {
      "--memo TEXT": "for your own records",
      "--network ID": "pay on another network, such as eip155:8453",
      ...TASK,
      ...APPROVAL,
    },
  },
  fetch: {
    usage: [
      'fetch <url> [--max AMOUNT] [--method M] [--header "Name: value"]... [--body TEXT] [--dry-run] [--raw]',
      "fetch --listing <id> [--max AMOUNT]",
      "fetch <url> --mcp-tool NAME [--arguments JSON] [--max AMOUNT] [--dry-run]",
    ],
    about:
      "Fetches a URL, a marketplace listing or a tool of an MCP server, and pays its price within the wallet's limits.\nThe URL has its scheme (https://...). The operator lists private ones in FETCH_PRIVATE_ORIGINS.",
    options: {
      "--max AMOUNT": "the most to pay, in USDC such as 0.01",
      "--method M": "GET, HEAD, POST, PUT, PATCH or DELETE",
      '--header "Name: value"': "may be given several times",
      "--body TEXT": "sent as it is",
      "--listing ID": "a listing of the marketplace, at its pinned terms",
      "--mcp-tool NAME": "call this tool of the MCP server at the URL",
      "--arguments JSON": "of that tool",
      "--dry-run":
        "show the price (with maximum: true the most it may be) and the decision, and pay nothing",
      "--raw": "print the content alone; what was paid goes to stderr",
      ...TASK,
      ...DETAIL,
      ...APPROVAL,
    },
  },
  approval: {
    usage: ["approval <id> [--wait SECONDS]"],
    about: "Shows an approval that was requested from the owner.",
    options: { "--wait SECONDS": "wait for the owner's decision" },
  },
  listings: {
    usage: ["listings [--search TEXT] [--max-price AMOUNT] [--detail full]"],
    about:
      "Searches the marketplace. Needs no key.\nA listing with maximum: true charges by use, at most its price.",
    options: {
      "--search TEXT": "words of the name or the description",
      "--max-price AMOUNT": "in USDC",
      ...DETAIL,
    },
  },
  validate: {
    usage: ["validate <url> [--method GET|POST] [--body TEXT] [--json]"],
    about:
      "Checks a paid API without paying: why nobody can pay it, or finds it, with the lines to change. Needs no key.\nExit code 1: nobody can pay it.",
    options: {
      "--method M": "GET or POST",
      "--body TEXT": "of a POST; sent only where a POST without a body is refused",
      "--json": "everything, as JSON",
    },
  },
  receipt: {
    usage: ["receipt <url or file>"],
    about:
      "Checks a merchant's receipt: that the service signed exactly this. Needs no key.\nExit code 1: it was changed, or is not signed by the service.",
  },
  payments: {
    usage: ["payments [--task ID] [--detail full]"],
    about: "Lists the payments, including refused ones, newest first.",
    options: { "--task ID": "only of this task", ...DETAIL },
  },
  payment: { usage: ["payment <id>"], about: "Shows everything about one payment." },
  task: {
    usage: [
      "task open <id> --limit AMOUNT [--expires TIME] [--name TEXT]",
      "task close <id>",
      "task show <id>",
      "task list",
    ],
    about:
      "Opens, closes and shows tasks: a ceiling for the payments of one piece of work, within the wallet's limits.",
    options: {
      "--limit AMOUNT": "the most that its payments cost together, in USDC",
      "--expires TIME":
        "such as 2026-12-31T18:00:00Z; without it the task is open until you close it",
      "--name TEXT": "for the owner",
    },
  },
  init: {
    usage: [
      "init [--key-file FILE] [--name NAME] [--daily-limit AMOUNT] [--allow ADDRESS]... [--fund AMOUNT] [--save]",
    ],
    about:
      "Signs in as an owner (a local service has a demo wallet), creates an agent, funds it if there is a faucet,\nand prints the key.",
    options: {
      "--key-file FILE": "the owner's private key",
      "--name NAME": "of the agent (My agent)",
      "--daily-limit AMOUNT": "in USDC (10)",
      "--allow ADDRESS":
        "who it may pay; may be given several times (a local service: its own sellers)",
      "--fund AMOUNT": "in USDC, from the faucet of a local service (100)",
      "--save": "store URL and key in your configuration",
    },
  },
  stop: {
    usage: ["stop [--key-file FILE]"],
    about:
      "Signs in as an owner, pauses all agents at once, and refuses new keys and approvals. Nothing is signed.",
    options: { "--key-file FILE": "the owner's private key" },
  },
  resume: {
    usage: ["resume [--key-file FILE]"],
    about:
      "Signs in as an owner, and signs the end of the stop: the agents that it paused can pay again.",
    options: { "--key-file FILE": "the owner's private key" },
  },
  connect: {
    usage: ["connect [CLIENT]... [--oauth] [--print] [--yes] [--name NAME]"],
    about:
      "Adds the wallet to the configuration of the agent programs on this machine, after it asks you.",
    options: {
      "--oauth": "store no key: the program signs in in the browser",
      "--print": "show the entry, and write nothing",
      "--yes": "do not ask",
      "--name NAME": "of the entry",
    },
  },
  mcp: { usage: ["mcp"], about: "Runs the wallet as an MCP server over stdio." },
};

const SETTINGS = `AGENT_API_KEY holds the key, PURSER_URL the server (http://localhost:3000).
PURSER_KEY_NAME selects a key that init --save or connect stored, by its name.
JSON on stdout: on one line, or indented in a terminal; validate prints text.
Exit code: 0 done, 1 refused or failed, 2 wrong usage, 3 blocked by a limit or rule, 4 outcome unknown,
5 the owner has not decided yet.`;

const linesOf = ({ usage }: Command): string => usage.map((line) => `  purser ${line}`).join("\n");

export const USAGE = `purser ${VERSION}: pay from an agent's wallet

${Object.values(COMMANDS).map(linesOf).join("\n")}

  purser <command> --help   what the command does, and its options

${SETTINGS}`;

export function usageOf(name: string | undefined): string {
  const command = COMMANDS[name ?? ""];
  if (!command) return USAGE;
  const options = Object.entries(command.options ?? {});
  const width = Math.max(0, ...options.map(([option]) => option.length));
  const listed = options.map(([option, meaning]) => `  ${option.padEnd(width)}  ${meaning}`);
  return [linesOf(command), command.about, listed.join("\n")].filter(Boolean).join("\n\n");
}

/** What a command takes. Undefined for a command that does not exist. */
export function argumentsOf(
  name: string,
): { options: ReadonlySet<string>; atMost: number } | undefined {
  const command = COMMANDS[name];
  if (!command) return undefined;
  const options = Object.keys(command.options ?? {}).map((option) => option.slice(2).split(" ")[0]);
  return {
    options: new Set(options as string[]),
    atMost: Math.max(...command.usage.map(placesOf)),
  };
}

/** How many arguments without `--` a line of usage has, after the command: `<id>`, `open`, or any number of `[CLIENT]...`. */
function placesOf(line: string): number {
  if (/^\w+ \[[A-Z]+\]\.\.\./.test(line)) return Number.POSITIVE_INFINITY;
  const [places = ""] = line.split(/ (?:--|\[)/);
  return (places.match(/<[^>]+>|\S+/g)?.length ?? 1) - 1;
}

/** The pages of all commands, for the documentation. */
export const ALL_USAGE = [USAGE, ...Object.keys(COMMANDS).map(usageOf)];
