import { type ButtonProps, Group, Stack } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { useMutation } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { ErrorNotice } from "../../components/ErrorNotice.tsx";
import { MutationButton } from "../../components/PendingButton.tsx";
import { invalidate } from "../../lib/query-keys.ts";
import type { Agent } from "../../lib/wire.ts";
import { allowPayee } from "./api.ts";
import type { AllowlistDraft } from "./rules.ts";

interface AllowPayeeProps extends Pick<ButtonProps, "variant" | "children"> {
  agent: Agent;
  payee: AllowlistDraft & { replaces?: string };
}

/** Adds one payee to the agent's allowlist with one press. */
export function AllowPayee({ agent, payee, variant, children }: AllowPayeeProps): ReactNode {
  const allow = useMutation({
    mutationFn: () => allowPayee(agent, payee),
    onSuccess: () => {
      notifications.show({ message: "The payee is now allowed." });
    },
    onSettled: invalidate.afterRules,
  });
  return (
    <Stack gap="sm">
      {allow.error && <ErrorNotice error={allow.error} />}
      <Group>
        <MutationButton variant={variant} size="xs" mutation={allow} pending="Allowing…">
          {children}
        </MutationButton>
      </Group>
    </Stack>
  );
}
