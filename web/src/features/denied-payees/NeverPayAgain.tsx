import { Button, Group } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { notifications } from "@mantine/notifications";
import { useMutation } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Address } from "../../components/Address.tsx";
import { ConfirmDialog } from "../../components/ConfirmDialog.tsx";
import { invalidate } from "../../lib/query-keys.ts";
import type { Payment } from "../../lib/wire.ts";
import { useRights } from "../../shared/session/OwnerOnly.tsx";
import { denyPayee } from "./api.ts";

/** On an agent's payment: no agent pays its payee any more. */
export function NeverPayAgain({ payment }: { payment: Payment }): ReactNode {
  const [isConfirming, confirming] = useDisclosure();
  const rights = useRights();
  const { kind, recipient, denial } = payment;
  const deny = useMutation({
    mutationFn: () => denyPayee({ payee: recipient ?? "" }),
    onSuccess: () => {
      confirming.close();
      notifications.show({ message: "Your agents never pay this payee from now on." });
    },
    onSettled: invalidate.afterDenied,
  });
  const isPayment = (kind === "spend" || kind === "x402") && denial?.code !== "payee_denied";
  if (recipient === null || !isPayment || rights === "read") return null;
  return (
    <Group>
      <Button
        color="red"
        variant="subtle"
        size="xs"
        onClick={() => {
          deny.reset();
          confirming.open();
        }}
      >
        Never pay this payee again
      </Button>
      <ConfirmDialog
        opened={isConfirming}
        title="Never pay this payee again?"
        mutation={deny}
        failed="It was not added"
        confirm="Never pay again"
        pending="Adding…"
        onCancel={confirming.close}
      >
        None of your agents pays <Address value={recipient} copy={false} /> from now on, whatever
        its rules or an approval allow. Payments that are already signed settle. To allow it again,
        remove it in the settings, which you sign.
      </ConfirmDialog>
    </Group>
  );
}
