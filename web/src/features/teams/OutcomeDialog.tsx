import { Button, Group, Stack } from "@mantine/core";
import type { ReactNode } from "react";
import { TxHash } from "../../components/Address.tsx";
import { Dialog } from "../../components/Dialog.tsx";
import { useExplorer } from "../../shared/info.ts";
import type { Outcome } from "./use-decide.ts";

interface OutcomeDialogProps {
  outcome: Outcome | undefined;
  onClose: () => void;
  /** Shows a new key, which only the last who signed receives. */
  reveal: (apiKey: string, agentName: string, onDone: () => void) => ReactNode;
}

/** The result of an order that was carried out. */
export function OutcomeDialog({ outcome, onClose, reveal }: OutcomeDialogProps): ReactNode {
  const explorer = useExplorer(outcome?.network);
  if (!outcome) return null;
  const { apiKey, agentName, txHash } = outcome;
  return (
    <Dialog
      opened
      onClose={onClose}
      closable={apiKey === undefined}
      size={apiKey === undefined ? "md" : "lg"}
      title={apiKey === undefined ? "Carried out" : "Your new key"}
    >
      {apiKey !== undefined ? (
        reveal(apiKey, agentName, onClose)
      ) : (
        <Stack>
          <p role="status">
            {txHash === undefined ? "All have signed, and it is done." : "Confirmed on chain."}
          </p>
          {txHash !== undefined && <TxHash value={txHash} explorerUrl={explorer} />}
          <Group justify="flex-end">
            <Button variant="filled" data-autofocus onClick={onClose}>
              Close
            </Button>
          </Group>
        </Stack>
      )}
    </Dialog>
  );
}
