// An owner changes the rules of an agent while it pays.
import { usdc, type KnownAgent } from "../agents.ts";
import { payee } from "../found.ts";
import type { Call } from "../host.ts";
import type { Item, Kind } from "../kind.ts";
import type { RuleName, RuleValue } from "../records.ts";
import { pause, type World } from "../world.ts";
import { ownerAsks } from "./owner.ts";

type Random = Item["random"];
export interface Wanted {
  values: [RuleName, RuleValue][];
  call: Call & { body?: Record<string, unknown> };
}

export const rules: Kind = {
  weight: 3,
  async play(world, { random }) {
    const agent = random.pick(world.active);
    for (let count = random.int(1, 3); count > 0; count -= 1) {
      await change(world, agent, wanted(agent, random));
      await pause(random.int(0, 4_000));
    }
  },
};

/** `concerned`: the agents whose rules it changes. */
export async function change(
  world: World,
  agent: KnownAgent,
  { values, call }: Wanted,
  concerned: readonly KnownAgent[] = [agent],
): Promise<void> {
  const { timeline } = world;
  const made = world.records.rules.begin(
    concerned.map(({ id }) => id),
    values,
    timeline.nowMs,
  );
  let overMs = 0;
  const answer = await ownerAsks(world, agent, call, {
    each: ({ status, body }) => {
      // A request whose client went away may still be carried out, at any time.
      if (status === 0)
        overMs = body["code"] === "gave up" ? Infinity : Math.max(overMs, timeline.nowMs);
    },
  });
  const isGone = call.route.startsWith("DELETE") && answer.status === 404;
  if (answer.status < 300 && answer.status > 0) made.certainMs = timeline.nowMs;
  if (isGone) made.certainMs = timeline.nowMs;
  if (answer.status !== 0) made.overMs = Math.max(overMs, timeline.nowMs);
}

export const changePaymentsPerHour = (
  world: World,
  agent: KnownAgent,
  most: number,
): Promise<void> =>
  change(
    world,
    agent,
    patchOf(agent, { paymentsPerHour: most }, [["paymentsPerHour", BigInt(most)]]),
  );

export const patchOf = (
  agent: KnownAgent,
  body: Record<string, unknown>,
  values: [RuleName, RuleValue][],
): Wanted => ({
  values,
  call: { route: "PATCH /api/agents/:id", params: { id: agent.id }, body },
});

/** Ends what a rule paused, too. */
export const activated = (agent: KnownAgent): Wanted =>
  patchOf(agent, { status: "active" }, [
    ["status", "active"],
    ["pausedByRule", "no"],
  ]);

export function wanted(agent: KnownAgent, random: Random): Wanted {
  const limit = (most: number) => BigInt(random.int(1, most)) * (agent.dailyLimit / 10n);
  const optional = (most: number) => (random.next() < 0.2 ? null : limit(most));
  const wire = (value: bigint | null) => (value === null ? null : usdc(value));
  const patch = (body: Record<string, unknown>, values: [RuleName, RuleValue][]): Wanted =>
    patchOf(agent, body, values);
  const [daily, weekly, monthly, perPayment] = [limit(20), optional(25), optional(30), optional(8)];
  const perHour = random.next() < 0.3 ? null : random.int(1, 4);
  switch (random.int(0, 8)) {
    case 0:
    case 1:
      return patch({ dailyLimit: usdc(daily) }, [["dailyLimit", daily]]);
    case 2:
      return patch({ weeklyLimit: wire(weekly), monthlyLimit: wire(monthly) }, [
        ["weeklyLimit", weekly],
        ["monthlyLimit", monthly],
      ]);
    case 3:
      return patch({ perPaymentLimit: wire(perPayment) }, [["perPaymentLimit", perPayment]]);
    case 4:
      return patch({ paymentsPerHour: perHour }, [
        ["paymentsPerHour", perHour === null ? null : BigInt(perHour)],
      ]);
    case 5:
      return patch({ status: "paused" }, [["status", "paused"]]);
    case 6:
      return activated(agent);
    case 7: {
      const address = random.pick(agent.payees);
      const params = { id: agent.id, address };
      if (random.next() < 0.5)
        return {
          values: [[`payee ${address}`, null]],
          call: { route: "DELETE /api/agents/:id/allowlist/:address", params },
        };
      const dailyLimit = optional(10);
      return {
        values: [[`payee ${address}`, { dailyLimit }]],
        call: {
          route: "POST /api/agents/:id/allowlist",
          params: { id: agent.id },
          body: { address, dailyLimit: wire(dailyLimit) },
        },
      };
    }
    default: {
      const kept = agent.payees.filter(() => random.next() < 0.7);
      const more = random.next() < 0.3 ? [payee(90)] : [];
      const dailyLimit = optional(10);
      const listed = new Set([...kept, ...more]);
      const all = [...agent.payees, payee(90)];
      return {
        values: all.map((address) => [
          `payee ${address}`,
          listed.has(address) ? { dailyLimit } : null,
        ]),
        call: {
          route: "PUT /api/agents/:id/allowlist",
          params: { id: agent.id },
          body: {
            allowlist: [...listed].map((address) => ({ address, dailyLimit: wire(dailyLimit) })),
          },
        },
      };
    }
  }
}
