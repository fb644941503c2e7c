/** `npm run move-owner`: moves an owner with its agents to another cell (docs/operations/move-an-owner.md). */
import type { parseArgs } from "node:util";
import { ConfigError } from "../config.ts";
import { readArguments, runAsProgram } from "../infra/command-line.ts";
import { CustodyError } from "../plugins/custody/envelope.ts";
import { closeCells, openCells, type Move } from "./cells.ts";
import { count } from "./copy.ts";
import { cancel, copy, end, findMove, mark, stateInNewCell, waitUntilQuiet } from "./move.ts";
import type { BegunMove } from "./move.ts";
import type { Moving } from "./moving.ts";
import * as owners from "./owners.ts";
import { MOVED } from "./tables.ts";

const USAGE = `npm run move-owner -- <address or id> [--dry-run] [--with-others] [--wait 900] [--cancel]

Moves an owner with its agents to another cell. Run it again to continue.

  --dry-run       what would move, and what prevents it; changes nothing
  --with-others   also moves the accounts that cannot be in another cell than this one
  --wait 900      how many seconds to wait for what is still open
  --cancel        gives a move up, until the new cell has the copy

It runs with the old cell's settings, and the new cell's beside them: TO_DATABASE_URL, TO_MASTER_KEYS,
TO_MASTER_KEY_ACTIVE, TO_CELL, TO_PUBLIC_URL, and any other that differs.`;

const OPTIONS = {
  "dry-run": { type: "boolean" },
  "with-others": { type: "boolean" },
  cancel: { type: "boolean" },
  wait: { type: "string" },
} as const;

type Print = (line: string) => void;
interface Call {
  move: Move;
  named: string;
  values: ReturnType<typeof parseArgs<{ options: typeof OPTIONS }>>["values"];
  say: Print;
}

/** The operator can do something about it. */
class NotMoved extends Error {
  override name = "NotMoved";
}

export async function moveOwner(
  args: string[],
  environment: Record<string, string | undefined>,
  say: Print,
): Promise<void> {
  const { values, positionals } = readArguments(args, USAGE, OPTIONS, { atMost: 1 });
  const [named] = positionals;
  if (named === undefined)
    throw new NotMoved("move-owner needs one owner: its address or id. See --help.");
  const move = openCells(environment);
  try {
    await run({ move, named, values, say });
  } finally {
    await closeCells(move);
  }
}

async function run(call: Call): Promise<void> {
  const { move, named, values, say } = call;
  const owner = await theOwner(move, named);
  const begun = await findMove(move, owner.id);
  if (begun && begun.toCell !== move.to.cell)
    throw new NotMoved(
      `The move of this account to ${begun.toCell} has begun: TO_CELL must be ${begun.toCell}.`,
    );
  const state = begun && (await stateInNewCell(move, begun.id));
  if (begun && state === undefined)
    throw new NotMoved("This move began with another database than TO_DATABASE_URL.");
  if (values["dry-run"]) return report(call, owner);
  if (values.cancel || state === "canceled") return giveUp(call, begun);
  if (begun?.state === "ended") return say(`${owner.id} is in the cell ${begun.toCell}.`);
  const current = begun ?? (await begin(call, owner));
  const moving = await owners.movingOf(move.from.pool, current.ownerIds);
  if (state !== "copied") await copyWhenQuiet(call, moving, current);
  await end(move, moving, current.id);
  say(
    `Done: ${current.ownerIds.join(", ")} is in the cell ${move.to.cell}, and this cell has no key of it.`,
  );
  await printProxyMap(call, moving);
}

async function theOwner({ from }: Move, named: string): Promise<owners.OwnerRow> {
  const found = await owners.findOwners(from.pool, named);
  const [owner, another] = found;
  if (!owner) throw new NotMoved(`This cell has no account ${named}.`);
  if (another)
    throw new NotMoved(
      `${named} has several accounts: name one by its id, ${found.map(({ id }) => id).join(" or ")}.`,
    );
  return owner;
}

async function report({ move, say }: Call, { id, movedTo }: owners.OwnerRow): Promise<void> {
  const tied = await owners.tiedTo(move.from.pool, id);
  const moving = await owners.movingOf(
    move.from.pool,
    tied.map(({ id }) => id),
  );
  for (const one of tied) say(nameOf(one));
  for (const table of MOVED) {
    const { rows } = await count(move.from.pool, table, moving);
    if (rows > 0n) say(`  ${table.table}: ${rows}`);
  }
  if (movedTo !== null) return say(`The move to ${movedTo} has begun.`);
  for (const reason of await owners.reasonsAgainst(move, moving)) say(`Prevents it: ${reason}.`);
  for (const open of await owners.openWork(move.from.pool, moving)) say(`Would wait for ${open}.`);
  say("Nothing was changed (--dry-run).");
}

const nameOf = ({ id, address, teamName }: owners.OwnerRow): string =>
  `${id} ${address}${teamName === null ? "" : ` (team "${teamName}")`}`;

async function begin({ move, values, say }: Call, { id }: owners.OwnerRow): Promise<BegunMove> {
  const tied = await owners.tiedTo(move.from.pool, id);
  if (tied.length > 1 && !values["with-others"])
    throw new NotMoved(
      `These accounts can only be in one cell, because of a team or of agents that they gave to one another:\n${tied.map((one) => `  ${nameOf(one)}`).join("\n")}\nMove all of them with --with-others.`,
    );
  const ids = tied.map((one) => one.id);
  const reasons = await owners.reasonsAgainst(move, await owners.movingOf(move.from.pool, ids));
  if (reasons.length > 0)
    throw new NotMoved(
      `Nothing was changed:\n${reasons.map((reason) => `  ${reason}`).join("\n")}`,
    );
  const begun = await mark(move, ids);
  say(
    `${begun.id}: from now on this cell refuses everything of ${ids.join(", ")}, and names ${move.to.config.publicUrl}.`,
  );
  return begun;
}

async function copyWhenQuiet(call: Call, moving: Moving, begun: BegunMove): Promise<void> {
  const { move, values, say } = call;
  const waitMs = Number(values.wait ?? "900") * 1_000;
  if (!(waitMs >= 0)) throw new NotMoved("--wait must be a number of seconds");
  for (;;) {
    if (!(await waitUntilQuiet(move, moving, { waitMs, say })))
      throw new NotMoved(
        "Something is still open. Run this command again to continue, or with --cancel to give the move up.",
      );
    const copied = await copy(move, moving, begun.id);
    if (copied === undefined) continue;
    say(`${copied} rows are in the cell ${move.to.cell}, and equal those of this cell.`);
    return;
  }
}

async function giveUp({ move, say }: Call, begun: BegunMove | undefined): Promise<void> {
  if (!begun || begun.state !== "began")
    throw new NotMoved("No move of this account is under way.");
  if (!(await cancel(move, begun)))
    throw new NotMoved(
      `The cell ${move.to.cell} has the copy already. Run this command without --cancel to finish.`,
    );
  say("The move was given up: this cell accepts everything of the account again.");
}

async function printProxyMap({ move, say }: Call, moving: Moving): Promise<void> {
  const keys = await owners.keyPrefixes(move.from.pool, moving);
  const lines = keys.filter(({ isShared }) => !isShared);
  if (lines.length > 0)
    say("Add these lines to moved.map of the proxy (ops/cells), and reload it:");
  for (const { prefix } of lines) say(`${prefix} ${move.to.cell}`);
  for (const { prefix, isShared } of keys)
    if (isShared)
      say(
        `${prefix} begins a key of another account, too: its holder must call ${move.to.config.publicUrl}, or get a new key.`,
      );
}

await runAsProgram(
  import.meta.url,
  () => moveOwner(process.argv.slice(2), process.env, (line) => console.log(line)),
  { ours: (error) => [ConfigError, CustodyError, NotMoved].some((kind) => error instanceof kind) },
);
