/** What cells send to each other. */
import { Type, type Static } from "typebox";
import { Digits, Id, Nullable } from "./common.ts";

/** The wallet that is signed in at the cell that asks. */
export const PayeeWire = Type.Object({
  address: Type.Unsafe<`0x${string}`>(Type.String({ pattern: "^0x[0-9a-f]{40}$" })),
  chainId: Type.Integer({ minimum: 0 }),
});
const Place = Type.String({ maxLength: 100 });
export const NewsAsked = Type.Object({ feesAfter: Nullable(Place), noticesAfter: Nullable(Place) });
export type NewsAsked = Static<typeof NewsAsked>;

const Account = Type.String({ pattern: "^0x[0-9a-f]{40}$" });
export const News = Type.Object({
  fees: Type.Array(
    Type.Object({ chainId: Type.Integer(), account: Account, charged: Digits, paid: Digits }),
  ),
  feesAfter: Nullable(Place),
  notices: Type.Array(
    Type.Object({
      address: Account,
      chainId: Type.Integer(),
      type: Type.Union(
        (
          ["settlement.settled", "settlement.failed", "refund.settled", "refund.failed"] as const
        ).map((type) => Type.Literal(type)),
      ),
      subjectId: Id,
      data: Type.Record(Type.String(), Type.Unknown()),
    }),
  ),
  noticesAfter: Place,
  isMore: Type.Boolean(),
  behindSeconds: Type.Number({
    description: "How old the oldest notice is that is not in this answer; 0 without one",
  }),
});
export type News = Static<typeof News>;
