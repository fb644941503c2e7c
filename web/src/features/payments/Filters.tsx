import { Group, NativeSelect, TextInput } from "@mantine/core";
import { useMutation } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { DownloadIcon } from "../../components/icons.tsx";
import { MutationButton } from "../../components/PendingButton.tsx";
import { toastFailure } from "../../components/toast.ts";
import { saveFile } from "../../lib/save-file.ts";
import { useParameter } from "../../lib/use-parameter.ts";
import type { Agent } from "../../lib/wire.ts";
import { downloadPayments } from "./api.ts";
import { KIND_OPTIONS, STATUS_OPTIONS, toFilter } from "./filter.ts";

/** The filter of the list, stored in the URL. */
export function useChoice() {
  const [status, setStatus] = useParameter("status");
  const [kind, setKind] = useParameter("kind");
  const [from, setFrom] = useParameter("from");
  const [to, setTo] = useParameter("to");
  const choice = { status, kind, from, to };
  return {
    isFiltered: Object.values(choice).some((value) => value !== ""),
    filter: toFilter(choice),
    status: { value: status, onChange: setStatus },
    kind: { value: kind, onChange: setKind },
    from: { value: from, onChange: setFrom, max: to },
    to: { value: to, onChange: setTo, min: from },
  };
}

interface FiltersProps {
  agent: Agent;
  choice: ReturnType<typeof useChoice>;
}

/** The filter's fields, and a download of the filtered payments. */
export function Filters({ agent, choice }: FiltersProps): ReactNode {
  const download = useMutation({
    mutationFn: () => downloadPayments(agent.id, choice.filter),
    onSuccess: (blob) => {
      saveFile(`${agent.name}-payments.csv`, blob, "text/csv");
    },
    onError: toastFailure("The CSV could not be made"),
  });
  return (
    <Group align="flex-end">
      <NativeSelect aria-label="Status" data={STATUS_OPTIONS} {...choice.status} />
      <NativeSelect aria-label="Kind" data={KIND_OPTIONS} {...choice.kind} />
      <TextInput flex="1 1 150px" miw={0} type="date" label="From day" {...choice.from} />
      <TextInput flex="1 1 150px" miw={0} type="date" label="To day" {...choice.to} />
      <MutationButton mutation={download} pending="Preparing…">
        <DownloadIcon size={16} />
        CSV
      </MutationButton>
    </Group>
  );
}
