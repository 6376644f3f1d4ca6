// The texts of segments and their index.
import { num, plural } from '../data/format.js';

export const segmentWords = {
  title: 'Segments',
  axis: (count) => `${plural(count, 'segment')} on a time axis; a high bar has a thin index`,
  note: 'width: time that a segment covers; height: bytes for each entry of its index',
  segment: (segment, size) =>
    `${num(segment.base_offset)} to ${num(segment.end_offset)}, ${size}, ${plural(segment.index_entries, 'entry', 'entries')}`,
  columns: {
    base: 'From offset',
    end: 'To',
    bytes: 'Size',
    last: 'Newest record',
    entries: 'Index entries',
    stretch: 'Longest stretch',
    state: 'Index',
  },
  sealed: 'on disk',
  active: 'in memory: the active segment, or one that was closed a moment ago',
};
