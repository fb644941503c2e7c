// A payment that a rule denies: the agent asks for approval, the owner decides, and the agent collects it.
import { asAgent, usdc, type KnownAgent } from "../agents.ts";
import { payee } from "../found.ts";
import type { Kind } from "../kind.ts";
import { isOutcome, pause, type Intent, type World } from "../world.ts";
import { ownerAsks } from "./owner.ts";

export const approvals: Kind = {
  weight: 2,
  async play(world, { random }) {
    const agent = random.pick(world.active);
    const isForeign = random.next() < 0.4;
    const to = isForeign ? payee(91) : random.pick(agent.payees);
    const amountAtomic = world.newAmount(isForeign ? 300_000n : agent.dailyLimit + 500_000n);
    const who = `approval of ${amountAtomic}`;
    const intent = world.intend({ who, from: agent.wallet, to, amountAtomic });
    const key = random.next() < 0.7 ? `approve-${amountAtomic}` : undefined;
    const collecting = collect(world, agent, intent, { key, decide: decided });
    await collecting;

    function decided(approvalId: string): Promise<void> {
      const kind = random.next();
      const record = { payee: to, amountAtomic, grantedMs: Infinity, declinedMs: Infinity };
      world.records.approvals.set(approvalId, record);
      const approve = async (): Promise<void> => {
        await pause(random.int(0, 4_000));
        await ownerAsks(
          world,
          agent,
          { route: "POST /api/approvals/:id/approve", params: { id: approvalId }, body: {} },
          { signing: () => (record.grantedMs = Math.min(record.grantedMs, world.timeline.nowMs)) },
        );
      };
      const decline = async (): Promise<void> => {
        await pause(random.int(0, 6_000));
        const { status } = await ownerAsks(world, agent, {
          route: "POST /api/approvals/:id/decline",
          params: { id: approvalId },
        });
        if (status === 200) record.declinedMs = world.timeline.nowMs;
      };
      if (kind < 0.55) return approve();
      if (kind < 0.7) return decline();
      if (kind < 0.9) return Promise.all([approve(), decline()]).then(() => undefined);
      return Promise.resolve();
    }
  },
};

/** The same call again and again, as long as its owner may still decide. */
async function collect(
  world: World,
  agent: KnownAgent,
  intent: Intent,
  { key, decide }: { key: string | undefined; decide: (approvalId: string) => Promise<void> },
): Promise<void> {
  const { to, amountAtomic } = intent;
  let headers: Record<string, string> = key === undefined ? {} : { "idempotency-key": key };
  let deciding: Promise<void> | undefined;
  for (let count = 0; count < 12; count += 1) {
    const answer = await world.ask(
      {
        route: "POST /api/agents/spend",
        headers,
        body: {
          recipient: to,
          amount: usdc(amountAtomic),
          requestApproval: true,
          reason: "needed",
        },
        as: asAgent(agent),
      },
      (each) => void intent.answers.push(each),
    );
    if (!isOutcome(answer)) break;
    if (answer.status !== 202) {
      intent.outcome = answer.status === 200 ? "paid" : "not paid";
      break;
    }
    const { approvalId, idempotencyKey } = answer.body as {
      approvalId: string;
      idempotencyKey: string;
    };
    deciding ??= decide(approvalId);
    // With the key that the answer names, or as before.
    if (world.random.next() < 0.5) headers = { "idempotency-key": idempotencyKey };
    await pause(500 + world.random.int(0, 2_000));
  }
  await deciding;
  // Nobody was told "paid"; an answer that was lost may still have done it.
  intent.isForgotten = true;
}
