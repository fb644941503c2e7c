// An owner withdraws: an amount or everything, with a key, with several or without, and sometimes late.
import { privateKeyToAccount } from "viem/accounts";
import type { Hex } from "viem";
import { type Orders, REQUESTED_FORM, typedDataOf } from "../../../server/core/orders.ts";
import { asOwner, usdc, type KnownAgent } from "../agents.ts";
import type { Answer, Lost } from "../host.ts";
import type { Item, Kind } from "../kind.ts";
import type { SignedOrder } from "../records.ts";
import { CHAIN_ID, pause, type World } from "../world.ts";
import { pay } from "./burst.ts";
import { ownerAsks } from "./owner.ts";

type Random = Item["random"];
interface Prepared {
  order: Orders["Withdraw"] & { nonce: Hex };
}

export const withdrawal: Kind = {
  weight: 2,
  async play(world, { random }) {
    const agent = random.pick(world.active);
    for (let count = random.int(1, 2); count > 0; count -= 1) {
      const isAll = random.next() < 0.4;
      const amount = isAll ? "max" : usdc(world.newAmount(BigInt(random.int(1, 4)) * 700_000n));
      const prepared = await prepare(world, agent, amount);
      // The agent may pay while its owner reads and signs: the money is promised twice.
      const paying =
        random.next() < 0.5
          ? pay(world, agent, {
              to: random.pick(agent.payees),
              about: (agent.dailyLimit * BigInt(random.int(1, 8))) / 10n,
            })
          : undefined;
      await pause(random.int(0, paying ? 1_000 : 4_000));
      if (prepared.status === 200)
        await carryOut(world, agent, prepared.body as unknown as Prepared, random);
      if (isAll && random.next() < 0.3) await archive(world, agent);
      await paying;
      await pause(random.int(0, 2_000));
    }
  },
};

const prepare = (world: World, agent: KnownAgent, amount: string): Promise<Answer | Lost> =>
  // Its answer is an order that another request sends.
  world.ask({
    route: "POST /api/agents/:id/withdrawals/prepare",
    params: { id: agent.id },
    body: { amount },
    as: asOwner(agent),
  });

/** Returns all that was answered. */
export async function withdraw(
  world: World,
  agent: KnownAgent,
  amount: string,
  random: Random,
): Promise<(Answer | Lost)[]> {
  const prepared = await prepare(world, agent, amount);
  if (prepared.status !== 200) return [prepared];
  return carryOut(world, agent, prepared.body as unknown as Prepared, random);
}

async function carryOut(
  world: World,
  agent: KnownAgent,
  { order: prepared }: Prepared,
  random: Random,
): Promise<(Answer | Lost)[]> {
  const nowSeconds = Math.floor(Date.now() / 1_000);
  const { nonce } = prepared;
  // The owner may sign a shorter time than the service proposes.
  const deadline = random.next() < 0.5 ? prepared.deadline : String(nowSeconds + random.int(1, 30));
  const order = { ...prepared, deadline };
  const signature = await privateKeyToAccount(agent.owner.key).signTypedData(
    typedDataOf("Withdraw", order, CHAIN_ID, REQUESTED_FORM) as never,
  );
  const keys =
    random.next() < 0.6 ? ["1"] : random.next() < 0.5 ? ["1", "1"] : ["1", "2", undefined];
  const record: SignedOrder = {
    who: `withdrawal of ${prepared.amount}`,
    wallet: agent.wallet,
    nonce,
    deadlineSeconds: Number(deadline),
    answers: [],
    isRepeated: new Set(keys).size > 1,
  };
  world.records.orders.push(record);
  // Sometimes at the last moment, or later.
  if (deadline !== prepared.deadline && random.next() < 0.7)
    await pause(Math.max(0, Number(deadline) * 1_000 - Date.now() - random.int(-1_000, 3_000)));
  const execute = async (key: string | undefined): Promise<void> => {
    const answer = await world.ask({
      route: "POST /api/agents/:id/withdrawals",
      params: { id: agent.id },
      body: { order, signature },
      headers: key === undefined ? {} : { "idempotency-key": `${nonce.slice(0, 20)}-${key}` },
      as: asOwner(agent),
    });
    record.answers.push(answer);
  };
  const isAtOnce = random.next() < 0.5;
  const all: Promise<void>[] = [];
  for (const key of keys) {
    const one = execute(key);
    all.push(one);
    if (!isAtOnce) await one;
  }
  await Promise.all(all);
  return record.answers;
}

/** Refused while there is money; after it the agent pays nothing. */
async function archive(world: World, agent: KnownAgent): Promise<void> {
  const change = world.records.rules.begin(
    [agent.id],
    [["status", "archived"]],
    world.timeline.nowMs,
  );
  const answer = await ownerAsks(world, agent, {
    route: "POST /api/agents/:id/archive",
    params: { id: agent.id },
    body: {},
  });
  if (answer.status === 200) change.certainMs = world.timeline.nowMs;
}
