import { TextInput } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { useMutation } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Button } from "../../components/Button.tsx";
import { DownloadIcon } from "../../components/icons.tsx";
import { Select } from "../../components/Select.tsx";
import { saveFile } from "../../lib/save-file.ts";
import { downloadPayments, type PaymentFilter } from "./api.ts";
import styles from "./Activity.module.css";

const STATUSES = [
  { value: "", label: "Every status" },
  { value: "settled", label: "Settled" },
  { value: "blocked", label: "Blocked" },
  { value: "reserved,submitted,unknown", label: "Open" },
  { value: "voided", label: "Voided" },
];
const KIND_OPTIONS = [
  { value: "", label: "Every kind" },
  { value: "spend", label: "Payments" },
  { value: "x402", label: "Paid APIs" },
  { value: "withdrawal", label: "Withdrawals" },
  { value: "incoming", label: "Received" },
];

export interface FilterChoice {
  status: string;
  kind: string;
  /** Dates as the date field gives them: YYYY-MM-DD. */
  from: string;
  to: string;
}

const midnight = (date: string, addDays: number): string | undefined => {
  const [year, month, day] = date.split("-").map(Number);
  if (year === undefined || month === undefined || day === undefined) return undefined;
  const time = new Date(year, month - 1, day + addDays);
  return Number.isNaN(time.getTime()) ? undefined : time.toISOString();
};

/** Days are the owner's own days; the API gets UTC instants, the end being the next midnight. */
export const toFilter = ({ status, kind, from, to }: FilterChoice): PaymentFilter => ({
  status: status === "" ? undefined : status,
  kind: kind === "" ? undefined : kind,
  from: from === "" ? undefined : midnight(from, 0),
  to: to === "" ? undefined : midnight(to, 1),
});

export function Filters({
  agentId,
  agentName,
  choice,
  set,
}: {
  agentId: string;
  agentName: string;
  choice: FilterChoice;
  set: Record<keyof FilterChoice, (value: string) => void>;
}): ReactNode {
  const download = useMutation({
    mutationFn: () => downloadPayments(agentId, toFilter(choice)),
    onSuccess: (blob) => {
      saveFile(`${agentName}-payments.csv`, blob, "text/csv");
    },
    onError: (error) => {
      notifications.show({
        color: "red",
        title: "The CSV could not be made",
        message: error.message,
      });
    },
  });
  return (
    <div className={styles.filters}>
      <Select
        label="Status"
        isLabelHidden
        value={choice.status}
        options={STATUSES}
        onChange={set.status}
      />
      <Select
        label="Kind"
        isLabelHidden
        value={choice.kind}
        options={KIND_OPTIONS}
        onChange={set.kind}
      />
      <TextInput
        type="date"
        aria-label="From day"
        className={styles.date}
        value={choice.from}
        max={choice.to}
        onChange={(event) => {
          set.from(event.currentTarget.value);
        }}
      />
      <TextInput
        type="date"
        aria-label="To day"
        className={styles.date}
        value={choice.to}
        min={choice.from}
        onChange={(event) => {
          set.to(event.currentTarget.value);
        }}
      />
      <Button
        pending={download.isPending && "Preparing…"}
        onClick={() => {
          download.mutate();
        }}
      >
        <DownloadIcon size={16} />
        CSV
      </Button>
    </div>
  );
}
