/** Wire types of an owner's first steps. */
import { Type, type Static } from "typebox";
import { Id, Nullable } from "./common.ts";

const Step = (description: string) => Type.Boolean({ description });

export const FirstSteps = Type.Object({
  isOpen: Type.Boolean({
    description: "Whether the app shows them: until the first paid call, or until they are hidden",
  }),
  agentId: Nullable(Id, "The newest agent that is not archived; null: there is none"),
  steps: Type.Object({
    funded: Step("An agent received USDC"),
    key: Step("An agent has a key that works, or a connected program"),
    paid: Step("An agent made a payment that settled"),
    notified: Step("Notifications reach a device or a confirmed e-mail address"),
    recovery: Step(
      "There is a recovery wallet, or a passkey beside the wallet, or a second passkey: the owner can lose one device or wallet",
    ),
  }),
});
export type FirstSteps = Static<typeof FirstSteps>;
