// A topic as the API gives it, with what pages show of its settings. Pure.

export const isInternal = (topic) => topic.is_internal === true;
export const kindOf = (topic) => (isInternal(topic) ? 'internal' : topic.kind);
export const tagsOf = (topic) => (topic.tags ?? topic.settings?.tags?.split(',') ?? []).filter(Boolean);
export const retentionMs = (topic) =>
  topic.retention_ms ?? (topic.settings?.retention_ms == null ? null : Number(topic.settings.retention_ms));
