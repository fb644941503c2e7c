/** What the operators' commands have in common: `--help`, refusal of anything unknown, and errors without a stack. */
import { realpathSync } from "node:fs";
import { pathToFileURL } from "node:url";
import { parseArgs, type ParseArgsConfig } from "node:util";

/** The command was called in a wrong way. */
export class UsageError extends Error {
  override name = "UsageError";
}

/** What `--help` throws, so that nothing else is done. */
export class HelpRequested extends Error {
  override name = "HelpRequested";
}

type Options = NonNullable<ParseArgsConfig["options"]>;
type Parsed<T extends Options> = ReturnType<
  typeof parseArgs<{ options: T; allowPositionals: true }>
>;

/** Reads the arguments. `usage` is printed for `--help`; its first line also follows a mistake. */
export function readArguments<const T extends Options>(
  args: readonly string[],
  usage: string,
  options: T,
  { atMost }: { atMost: number } = { atMost: 0 },
): Parsed<T> {
  if (args.includes("--help") || args.includes("-h")) throw new HelpRequested(usage);
  const [howToCall = ""] = usage.split("\n");
  const config = { args: [...args], options, allowPositionals: true } satisfies ParseArgsConfig;
  let parsed: Parsed<T>;
  try {
    parsed = parseArgs<{ options: T; allowPositionals: true }>(config);
  } catch (cause) {
    // Node adds advice about arguments that begin with a hyphen, which no command of ours takes.
    const [problem = ""] = (cause as Error).message.split(". To specify a positional argument");
    throw new UsageError(`${problem}.\n${howToCall}`, { cause });
  }
  const extra = parsed.positionals[atMost];
  if (extra !== undefined) throw new UsageError(`"${extra}" is not expected.\n${howToCall}`);
  return parsed;
}

/** Runs the module as a program, and not when a test imports it. An error of `ours` is shown without its stack. */
export async function runAsProgram(
  moduleUrl: string,
  main: () => Promise<unknown>,
  options: {
    ours: (error: unknown) => boolean;
    exitCode?: number;
    /** One line for a fault that is not in our code. */
    explain?: (error: unknown) => string | undefined;
  },
): Promise<void> {
  const { ours, exitCode = 1, explain } = options;
  // realpath, because a symlink in the path must not turn the program into a no-op.
  if (moduleUrl !== pathToFileURL(realpathSync(process.argv[1] ?? ".")).href) return;
  try {
    await main();
  } catch (error) {
    if (error instanceof HelpRequested) return console.log(error.message);
    const isPlain = error instanceof UsageError || ours(error);
    console.error(isPlain ? (error as Error).message : (explain?.(error) ?? error));
    process.exitCode = exitCode;
  }
}
