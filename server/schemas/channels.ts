/** Wire types of the payment channels of agents' wallets. */
import { Type, type Static } from "typebox";
import {
  AddressOutput,
  Amount,
  Described,
  Hex32,
  Id,
  IdParam,
  NetworkId,
  Nullable,
  Page,
  Strict,
  Timestamp,
} from "./common.ts";

export const ChannelParams = Strict({ id: IdParam, channelId: Hex32 });

/** Money of a wallet in escrow, from which one seller is paid by vouchers. */
export const AgentChannel = Type.Object({
  id: Hex32,
  agentId: Id,
  network: NetworkId,
  payTo: AddressOutput,
  url: Nullable(Type.String(), "Where it was used last"),
  status: Type.Union([Type.Literal("open"), Type.Literal("closing"), Type.Literal("closed")], {
    description:
      "closing: no longer used; the rest comes back by the seller's refund, or after the withdraw delay",
  }),
  reason: Nullable(
    Type.Union([
      Type.Literal("owner"),
      Type.Literal("seller_broke_rules"),
      Type.Literal("key_changed"),
      Type.Literal("unused"),
    ]),
    "Why it is not open; unused: for 30 days",
  ),
  withdrawDelaySeconds: Type.Integer({
    description: "How long a withdrawal takes without the seller",
  }),
  balance: Described(Amount, "In escrow"),
  spent: Described(Amount, "Signed for: the seller may claim it"),
  charged: Described(Amount, "What the seller has charged of that"),
  held: Described(Amount, "In escrow beyond what is signed for"),
  returned: Described(Amount, "Came back to the wallet"),
  returnsAt: Nullable(
    Timestamp,
    "closing: a withdrawal without the seller has begun, and returns the rest then",
  ),
  createdAt: Timestamp,
  lastUsedAt: Timestamp,
  closedAt: Nullable(Timestamp),
});
export type AgentChannel = Static<typeof AgentChannel>;

export const AgentChannelPage = Type.Object({
  ...Page(AgentChannel).properties,
  total: Type.Object(
    {
      channels: Type.Integer(),
      open: Type.Integer(),
      balance: Described(Amount, "In escrow"),
      held: Described(Amount, "Of that, beyond what is signed for"),
      longestDelaySeconds: Type.Integer({ description: "The longest withdraw delay; 0: none" }),
    },
    { description: "Of all channels of the agent that have money and are not closed" },
  ),
});

export type PaymentChannelTotal = Static<typeof AgentChannelPage>["total"];

export const ClosingAnswer = Type.Object({
  closing: Type.Integer({ description: "How many channels were open, and are closing now" }),
});
