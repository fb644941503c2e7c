import type { PrismaClient } from "../../infra/db/prisma.ts";
import type { RequestOwner } from "../auth/index.ts";
import type { OwnerOrders } from "../orders/orders.ts";

/** A request of an owner that may need the owner's signature. */
export interface OwnerCall {
  prisma: PrismaClient;
  orders: OwnerOrders;
  owner: RequestOwner;
  /** The chain of the EIP-712 domain of such orders. */
  chainId: number;
}
