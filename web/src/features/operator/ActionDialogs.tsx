import { Stack, Textarea, TextInput } from "@mantine/core";
import { useInputState } from "@mantine/hooks";
import { notifications } from "@mantine/notifications";
import { useMutation } from "@tanstack/react-query";
import { type ReactNode, useEffect, useState } from "react";
import { Dialog } from "../../components/Dialog.tsx";
import { Note } from "../../components/Layout.tsx";
import { RequestForm } from "../../components/RequestForm.tsx";
import { invalidate } from "../../lib/query-keys.ts";
import type { OperatorDifferences } from "../../lib/wire.ts";
import { useNetworkNames } from "../../shared/info.ts";
import { closeDifference, newConfirmation, readAgain } from "./api.ts";

const MAX_REASON = 500;

/** The dialogs are mounted only while they are open, so Mantine does not return the focus itself. */
function useFocusReturn(): void {
  const [opener] = useState(() => document.activeElement);
  useEffect(
    () => () => {
      if (opener instanceof HTMLElement)
        setTimeout(() => {
          opener.focus({ preventScroll: true });
        });
    },
    [opener],
  );
}

function useConfirmed() {
  useFocusReturn();
  const [confirmationId] = useState(newConfirmation);
  const [why, setWhy] = useInputState("");
  return { confirmed: { confirmationId, why: why.trim() }, why, setWhy };
}

interface ReasonProps {
  why: string;
  setWhy: ReturnType<typeof useConfirmed>["setWhy"];
}

const Reason = ({ why, setWhy }: ReasonProps): ReactNode => (
  <Textarea
    label="Reason"
    description="One sentence for those who read the record later"
    maxLength={MAX_REASON}
    autosize
    minRows={2}
    value={why}
    onChange={setWhy}
  />
);

const RECORDED = "It is written into the operators' record with your wallet's address.";

export function CloseDifference({
  difference,
  onClose,
}: {
  difference: OperatorDifferences["items"][number];
  onClose: () => void;
}): ReactNode {
  const { network, kind, key, meaning } = difference;
  const { confirmed, why, setWhy } = useConfirmed();
  const close = useMutation({
    mutationFn: () => closeDifference({ network, kind, key, ...confirmed }),
    onSuccess: () => {
      notifications.show({ message: "The difference is closed." });
      onClose();
    },
    onSettled: invalidate.afterOperatorAction,
  });
  return (
    <Dialog opened onClose={onClose} title="Close the difference" size="sm">
      <RequestForm
        mutation={close}
        failed="The difference was not closed"
        confirm="Close the difference"
        pending="Closing…"
        color="red"
        disabled={confirmed.why === ""}
        onCancel={onClose}
      >
        <Stack gap="sm">
          <p>
            {kind}: {meaning}.
          </p>
          <Note color="yellow">
            The alarm ends. Nothing is repaired, and no money moves: close it only when you have
            looked at it and it is over. {RECORDED}
          </Note>
        </Stack>
        <Reason why={why} setWhy={setWhy} />
      </RequestForm>
    </Dialog>
  );
}

export function ReadAgain({
  network,
  onClose,
}: {
  network: string;
  onClose: () => void;
}): ReactNode {
  const nameOf = useNetworkNames();
  const { confirmed, why, setWhy } = useConfirmed();
  const [fromBlock, setFromBlock] = useInputState("");
  const isBlock = /^(0|[1-9][0-9]{0,17})$/.test(fromBlock.trim());
  const read = useMutation({
    mutationFn: () => readAgain({ network, fromBlock: fromBlock.trim(), ...confirmed }),
    onSuccess: () => {
      notifications.show({ message: "The chain is read again." });
      onClose();
    },
    onSettled: invalidate.afterOperatorAction,
  });
  return (
    <Dialog opened onClose={onClose} title={`Read ${nameOf(network)} again`} size="sm">
      <RequestForm
        mutation={read}
        failed="Nothing is read again"
        confirm="Read again"
        pending="Starting…"
        disabled={!isBlock || confirmed.why === ""}
        onCancel={onClose}
      >
        <Note>
          Every block from there on is compared with the ledger again. Until that is done, newer
          blocks wait. No money moves. {RECORDED}
        </Note>
        <TextInput
          label="From block"
          inputMode="numeric"
          data-autofocus
          value={fromBlock}
          onChange={setFromBlock}
          error={fromBlock !== "" && !isBlock && "A block's number"}
        />
        <Reason why={why} setWhy={setWhy} />
      </RequestForm>
    </Dialog>
  );
}
