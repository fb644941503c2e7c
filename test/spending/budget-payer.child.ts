// A process that reserves payments of many agents at once, as one replica of several. Started by budgets.test.ts and tasks.test.ts.
import { newId } from "../../server/core/ids.ts";
import { createPool } from "../../server/infra/db/pool.ts";
import { reserve } from "../../server/plugins/guardrails/store.ts";
import { reserveRequest, type SeededAgent } from "./guardrails-sql.helper.ts";

interface Work {
  url: string;
  agents: SeededAgent[];
  payments: number;
  /** In this task. */
  task?: string;
}

process.once("message", ({ url, agents, payments, task }: Work) => {
  const pool = createPool(url, { maxConnections: 5 });
  const pay = async (index: number): Promise<string> => {
    const agent = agents[index % agents.length];
    if (!agent) throw new Error("no agents");
    const request = reserveRequest(agent, 1n, { task });
    const { outcome, code } = await reserve(pool, {
      ...request,
      paymentId: newId("pay"),
      dryRun: false,
    });
    return code ?? outcome;
  };
  const work = async (): Promise<void> => {
    const outcomes = await Promise.all(
      Array.from({ length: payments }, (_, index) => pay(index).catch(String)),
    );
    await pool.end();
    process.send?.(outcomes, () => {
      process.disconnect();
    });
  };
  void work();
});
process.send?.("ready");
