import type { FastifyInstance } from "fastify";
import type { BalanceReader } from "../domain/payments/payments.ts";
import type { Settlement } from "../domain/settlement/types.ts";

/** The engine's decorations, asked for when they are used. */
export function engineOf(app: FastifyInstance): {
  settlement: Settlement;
  chainReads: BalanceReader;
} {
  return app as unknown as { settlement: Settlement; chainReads: BalanceReader };
}
