import { TextInput } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { useMutation } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Button } from "../../components/Button.tsx";
import { DownloadIcon } from "../../components/icons.tsx";
import { Select } from "../../components/Select.tsx";
import { saveFile } from "../../lib/save-file.ts";
import styles from "./Activity.module.css";
import { downloadPayments } from "./api.ts";
import { type FilterChoice, KIND_OPTIONS, STATUS_OPTIONS, toFilter } from "./filter.ts";

interface FiltersProps {
  agentId: string;
  agentName: string;
  choice: FilterChoice;
  set: Record<keyof FilterChoice, (value: string) => void>;
}

/** The filter of the list, and a download of the filtered payments. */
export function Filters({ agentId, agentName, choice, set }: FiltersProps): ReactNode {
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
        options={STATUS_OPTIONS}
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
