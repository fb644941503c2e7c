// What happens to the database and the way to it.
import type { Kind } from "../kind.ts";
import { Client, DatabaseError } from "../pg.ts";
import { CHAIN_ID, pause } from "../world.ts";
import { moneyStep, watchSteps } from "./steps.ts";

/** All connections end at once, or those of one process. */
export const connectionsCut: Kind = {
  weight: 2,
  async play(world, { random }) {
    const [one] = random.shuffled(world.services);
    const only = random.next() < 0.5 ? one : undefined;
    world.database.cut((session) => only === undefined || session.actor === only);
  },
};

/** A connection ends before a statement takes effect, or after: then only the response is lost, also that of a COMMIT. */
export const responsesLost: Kind = {
  weight: 5,
  with: ["seller", "spender", "burst"],
  async play(world, { random }) {
    const isWanted = moneyStep(random);
    const share = random.pick([0.3, 1]);
    let left = random.int(1, 5);
    await watchSteps(world, random.int(3_000, 20_000), (step) => {
      if (!isWanted(step) || random.next() > share) return "go on";
      world.timeline.note(`LOST ${step.moment} ${step.text.slice(0, 60)} of ${step.actor.name}`);
      step.cut();
      left -= 1;
      return left > 0 ? "go on" : "done";
    });
  },
};

/** The engine has payments, and the process that gave them to it does not know that. */
export const acceptancesLost: Kind = {
  weight: 3,
  with: ["seller"],
  async play(world, { random }) {
    let left = random.int(1, 3);
    await watchSteps(world, 15_000, ({ moment, text, cut }) => {
      if (moment !== "after" || text !== "settlement-accept") return "go on";
      cut();
      left -= 1;
      return left > 0 ? "go on" : "done";
    });
  },
};

/** No connection is possible. */
export const databaseDown: Kind = {
  weight: 2,
  async play(world, { random }) {
    const { database } = world;
    database.isDown = true;
    if (random.next() < 0.7) database.cut();
    await world.lasting(random.int(300, random.pick([3_000, 20_000])), () => {
      database.isDown = false;
    });
  },
};

/** Statements take effect, and no response arrives for seconds. */
export const databaseSilent: Kind = {
  weight: 2,
  async play(world, { random }) {
    const ms = random.int(500, random.pick([3_000, 15_000]));
    world.database.silentUntilMs = world.timeline.nowMs + ms;
    await pause(ms);
  },
};

/**
 * Decisions about one agent's payments wait for its owner's gas account, the last that they look at: several are under way
 * at once, at several processes.
 */
export const decisionsHeld: Kind = {
  weight: 3,
  with: ["burst"],
  services: 2,
  play: (world, { random }) =>
    inOtherSession(async (client) => {
      for (const { id } of world.active) {
        await client.query("BEGIN");
        await client.query(HOLD_GAS_ACCOUNT, [id]);
        await pause(random.int(500, 3_000));
        await client.query("ROLLBACK");
      }
    }),
};

/** Whether it exists or not. */
const HOLD_GAS_ACCOUNT = `INSERT INTO gas_accounts AS g (chain_id, account, full_at, held)
  SELECT ${CHAIN_ID}, 'owner:' || a.owner_id, clock_timestamp(), 0 FROM agents a WHERE a.id = $1
  ON CONFLICT (chain_id, account) DO UPDATE SET held = g.held`;

const HELD = [
  "SELECT 1 FROM agents WHERE id = $1 FOR UPDATE",
  "SELECT 1 FROM payments WHERE agent_id = $1 FOR UPDATE",
  "SELECT 1 FROM settlements WHERE agent_id = $1 FOR UPDATE",
  "SELECT 1 FROM relayer_lanes WHERE $1 <> '' FOR UPDATE",
  "SELECT 1 FROM relayer_transactions WHERE $1 <> '' AND status <> 'mined' FOR UPDATE",
  "SELECT 1 FROM gas_accounts WHERE $1 <> '' FOR UPDATE",
  "SELECT 1 FROM ledger_cursors WHERE $1 <> '' FOR UPDATE",
  "LOCK TABLE settlements IN SHARE MODE",
];

/** Another session, an operator's for example, keeps rows locked for longer or shorter than statements wait. */
export const rowsHeld: Kind = {
  weight: 3,
  play: (world, { random }) =>
    inOtherSession(async (client) => {
      const text = random.pick(HELD);
      await client.query("BEGIN");
      await client.query(text, text.includes("$1") ? [random.pick(world.agents).id] : []);
      world.timeline.note(`HELD ${text}`);
      await pause(random.int(500, random.pick([2_000, 8_000])));
      await client.query("ROLLBACK");
    }),
};

/** Its own connection may be cut as well; an error of a statement is a mistake here. */
async function inOtherSession(work: (client: Client) => Promise<void>): Promise<void> {
  const client = new Client();
  client.on("error", () => undefined);
  try {
    await client.connect();
    await work(client);
  } catch (error) {
    if (error instanceof DatabaseError && error.severity === "ERROR") throw error;
  } finally {
    await client.end();
  }
}
