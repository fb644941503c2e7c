import type { ReactNode } from "react";
import { Dialog } from "../../components/Dialog.tsx";
import type { Agent, ApiKey, CreatedKey } from "../../lib/wire.ts";
import { CreateKeyForm } from "./CreateKeyForm.tsx";
import { KeyReveal } from "./KeyReveal.tsx";
import { RevokeKeyForm } from "./RevokeKeyForm.tsx";
import { RotateKeyForm } from "./RotateKeyForm.tsx";

export type OpenKeyDialog =
  | { kind: "create" }
  | { kind: "rotate" | "revoke"; key: ApiKey }
  | { kind: "reveal"; apiKey: string }
  | undefined;

const TITLES = {
  create: "New API key",
  rotate: "Rotate the key",
  revoke: "Revoke the key",
  reveal: "Your new key",
};

interface KeyDialogProps {
  agent: Agent;
  open: OpenKeyDialog;
  onOpen: (open: OpenKeyDialog) => void;
}

/** The dialog for all actions on keys: a form, then the new key, which is shown only once. */
export function KeyDialog({ agent, open, onOpen }: KeyDialogProps): ReactNode {
  const close = (): void => {
    onOpen(undefined);
  };
  const reveal = ({ apiKey }: CreatedKey): void => {
    onOpen({ kind: "reveal", apiKey });
  };
  return (
    <Dialog
      opened={open !== undefined}
      onClose={close}
      closable={open?.kind !== "reveal"}
      title={open ? TITLES[open.kind] : ""}
      size={open?.kind === "reveal" ? "lg" : "md"}
    >
      {open?.kind === "create" && (
        <CreateKeyForm agent={agent} onCreated={reveal} onCancel={close} />
      )}
      {open?.kind === "rotate" && (
        <RotateKeyForm agent={agent} apiKey={open.key} onCreated={reveal} onCancel={close} />
      )}
      {open?.kind === "revoke" && (
        <RevokeKeyForm agentId={agent.id} apiKey={open.key} onDone={close} />
      )}
      {open?.kind === "reveal" && (
        <KeyReveal apiKey={open.apiKey} agentName={agent.name} onDone={close} />
      )}
    </Dialog>
  );
}
